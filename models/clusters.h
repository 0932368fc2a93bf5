// What CLUSTER can name: hardware presets of models/hardware, this machine (localhost:N), or a
// cluster.json. Not for: the grammar (planner/formats/cluster_grammar.h) or calibration files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/core/cluster.h"
#include "planner/core/result.h"
#include "planner/formats/cluster_json.h"

namespace bayplan {

/// Preset names, sorted.
const std::vector<std::string>& hardware_preset_names();

/// A preset by name; "unknown-preset" names the nearest.
Result<HardwarePreset> find_hardware_preset(std::string_view name, const std::string& where);

/// CLUSTER → cluster. Terms joined with '+' become node groups in that order; the network between
/// them is the slowest of theirs.
Result<Cluster> resolve_cluster(std::string_view text);

/// True for localhost:N and NODESxlocalhost:N.
bool is_localhost(const Cluster& cluster);

}  // namespace bayplan
