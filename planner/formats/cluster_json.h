// Cluster ↔ JSON (docs: "cluster.json"). Sizes, rates and times carry their unit; unknown fields
// are refused. A group's device is an object or the name of a hardware preset, whose node fields
// are then the defaults. Not for: the CLUSTER grammar (cluster_grammar.h), presets (models/).
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "planner/core/cluster.h"
#include "planner/core/result.h"
#include "planner/formats/json_cursor.h"

namespace bayplan {

/// A hardware preset: one device in its usual node, and the usual network between such nodes.
struct HardwarePreset {
  NodeGroup group;  // nodes = 1
  Link inter_node;
};

/// Finds a preset; `where` is for the error.
using HardwareLookup =
    std::function<Result<HardwarePreset>(std::string_view name, const std::string& where)>;

/// Ranks that a cluster may have; larger products are refused before anything multiplies them.
constexpr std::int64_t kMostDevices = std::int64_t{1} << 20;

Result<Cluster> read_cluster(const JsonCursor& at, const HardwareLookup& presets);
Result<HardwarePreset> read_hardware_preset(const JsonCursor& at);

/// Everything read_cluster reads, presets written out. Reads back as an equal cluster.
nlohmann::ordered_json write_cluster(const Cluster& cluster);

/// Where a rank's device counts, checks and names come from: every group has at least one node and
/// device, and all together at most kMostDevices.
Status check_cluster(const Cluster& cluster, const std::string& where);

}  // namespace bayplan
