// The CLUSTER argument as typed: "16x8xa100-sxm-80gb@200Gbps", "8xa100-sxm-40gb+8xv100-sxm2-32gb",
// "localhost:4", "2xlocalhost:2", "my/cluster.json". Only the grammar: models/clusters.h knows
// the presets and this machine.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/core/result.h"
#include "planner/core/units.h"

namespace bayplan {

struct ClusterTerm {
  enum class Kind : std::uint8_t { kPreset, kLocalhost, kFile } kind = Kind::kPreset;
  int nodes = 1;
  int devices = 1;                        // per node; of localhost: ranks
  std::string name;                       // preset, or path
  std::optional<BytesPerSecond> network;  // per device, after '@'
};

/// The terms between '+'. A file stands alone.
Result<std::vector<ClusterTerm>> parse_cluster_expression(std::string_view text);

}  // namespace bayplan
