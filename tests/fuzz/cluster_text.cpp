// Fuzz target: the CLUSTER grammar and --set, separated by the first newline.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "models/clusters.h"
#include "planner/formats/cluster_grammar.h"
#include "planner/formats/cluster_settings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bayplan;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t line = std::min(text.find('\n'), size);
  // The grammar alone: names may be paths, which a fuzzer must not open.
  if (const auto terms = parse_cluster_expression(text.substr(0, line)); terms.ok()) {
    for (const ClusterTerm& term : *terms) {
      if (term.nodes < 1 || term.devices < 1) std::abort();
    }
  }
  static const Cluster cluster = *resolve_cluster("2x4xa100-sxm-40gb");
  const std::vector<std::string> settings = {
      std::string(text.substr(line == size ? line : line + 1))};
  if (const auto changed = apply_settings(cluster, settings); changed.ok()) {
    if (changed->device_count() < 1) std::abort();
  }
  return 0;
}
