// Fuzz target: cluster files. A cluster that is read is written and read back the same.
#include "planner/formats/cluster_json.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "models/clusters.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bayplan;
  const auto document = parse_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!document) return 0;
  (void)read_hardware_preset(JsonCursor(*document));
  const auto cluster = read_cluster(JsonCursor(*document), find_hardware_preset);
  if (!cluster) return 0;
  const nlohmann::ordered_json written = write_cluster(*cluster);
  const auto back = read_cluster(JsonCursor(json_document(nlohmann::json(written), "again.json")),
                                 find_hardware_preset);
  if (!back || write_cluster(*back) != written) std::abort();
  return 0;
}
