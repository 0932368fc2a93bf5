#include "models/clusters.h"

#include <fmt/format.h>

#include "models/localhost.h"
#include "models/preset_names.h"
#include "planner/formats/cluster_grammar.h"
#include "planner/formats/json_cursor.h"
#include "planner/formats/nearest.h"

namespace bayplan {
namespace {

constexpr std::string_view kHardwareFolder = "models/hardware/";
constexpr std::string_view kLocalhost = "localhost";

Result<Cluster> read_cluster_file(const std::string& path) {
  BAYPLAN_TRY(document, read_json_file(path));
  const JsonCursor at(document);
  if (at.has("schema") && at.at("schema").is_string() &&
      *at.at("schema").string() == "bayplan.plan/1") {
    return at.at("schema").error("not-a-cluster", "this file is a plan, not a cluster",
                                 "name a cluster.json, a hardware preset or localhost:N");
  }
  return read_cluster(at, find_hardware_preset);
}

}  // namespace

const std::vector<std::string>& hardware_preset_names() {
  static const std::vector<std::string> names = preset_names(kHardwareFolder);
  return names;
}

Result<HardwarePreset> find_hardware_preset(std::string_view name, const std::string& where) {
  if (const EmbeddedFile* file = find_preset_file(kHardwareFolder, name)) {
    BAYPLAN_TRY(document, parse_json(file->text, std::string(file->path)));
    return read_hardware_preset(JsonCursor(document));
  }
  return Error{
      "unknown-preset", fmt::format("no hardware preset is called '{}'", name.substr(0, 80)), where,
      fmt::format(
          "nearest: '{}'; 'bayplan presets hardware' lists all; this machine is localhost:N",
          nearest_name(name, hardware_preset_names()))};
}

Result<Cluster> resolve_cluster(std::string_view text) {
  BAYPLAN_TRY(terms, parse_cluster_expression(text));
  Cluster cluster;
  for (const ClusterTerm& term : terms) {
    NodeGroup group;
    Link network;
    switch (term.kind) {
      case ClusterTerm::Kind::kFile: {
        BAYPLAN_TRY(from_file, read_cluster_file(term.name));
        from_file.name = std::string(text);
        return from_file;
      }
      case ClusterTerm::Kind::kLocalhost: {
        BAYPLAN_TRY(preset, find_hardware_preset("cpu", "CLUSTER"));
        BAYPLAN_TRY(machine, describe_machine());
        group = localhost_group(machine, preset, term.nodes, term.devices);
        // Emulated nodes talk through the machine's own memory.
        network = group.intra_node;
        break;
      }
      case ClusterTerm::Kind::kPreset: {
        BAYPLAN_TRY(preset, find_hardware_preset(term.name, "CLUSTER"));
        group = preset.group;
        group.nodes = term.nodes;
        group.devices_per_node = term.devices;
        network = preset.inter_node;
        break;
      }
    }
    if (term.network) network.bandwidth = *term.network;
    const bool first = cluster.groups.empty();
    if (first || network.bandwidth < cluster.inter_node.bandwidth) cluster.inter_node = network;
    cluster.groups.push_back(std::move(group));
  }
  cluster.name = std::string(text);
  BAYPLAN_RETURN_IF_ERROR(check_cluster(cluster, "CLUSTER"));
  return cluster;
}

bool is_localhost(const Cluster& cluster) {
  return !cluster.groups.empty() && cluster.groups.front().name == kLocalhost;
}

}  // namespace bayplan
