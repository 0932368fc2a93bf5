#include "planner/formats/cluster_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "planner/formats/cluster_json.h"
#include "planner/formats/json_cursor.h"
#include "planner/formats/nearest.h"

namespace bayplan {
namespace {

using nlohmann::ordered_json;
using Pointer = ordered_json::json_pointer;

/// Names as typed may separate with '.', '/' or '_'.
std::string flattened(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const char flat = c == '.' || c == '/' ? '_' : c;
    if (out.empty() && flat == '_') continue;
    out += flat;
  }
  return out;
}

struct Field {
  std::vector<Pointer> places;
  std::string shown;  // dotted, as an error names it
};

/// Adds one leaf under every name that reaches it.
void add_leaf(std::map<std::string, Field>& fields, const std::string& dotted,
              const Pointer& place) {
  const auto add = [&](const std::string& name) {
    Field& field = fields[flattened(name)];
    field.shown = name;
    field.places.push_back(place);
  };
  add(dotted);
  if (!dotted.starts_with("groups.")) return;
  const std::string in_group = dotted.substr(dotted.find('.', 7) + 1);
  add(in_group);
  if (in_group.starts_with("device.")) add(in_group.substr(7));
}

void collect_leaves(const ordered_json& value, const std::string& dotted, const Pointer& place,
                    std::map<std::string, Field>& fields) {
  if (value.is_object() || value.is_array()) {
    for (const auto& item : value.items()) {
      const Pointer next = value.is_array() ? place / std::stoul(item.key()) : place / item.key();
      collect_leaves(item.value(), dotted.empty() ? item.key() : dotted + "." + item.key(), next,
                     fields);
    }
    return;
  }
  if (dotted == "schema" || dotted == "name") return;
  add_leaf(fields, dotted, place);
}

/// Fields that the JSON of this cluster leaves out because they say "none".
ordered_json with_absent_fields(ordered_json cluster) {
  const ordered_json no_link = {{"latency", ""}, {"bandwidth", ""}};
  if (!cluster.contains("inter_node")) cluster["inter_node"] = no_link;
  for (ordered_json& group : cluster["groups"]) {
    for (const char* link : {"intra_node", "host_link"}) {
      if (!group.contains(link)) group[link] = no_link;
    }
    for (const char* dtype : {"fp64", "fp32", "bf16", "fp16"}) {
      if (!group["device"]["peak"].contains(dtype)) group["device"]["peak"][dtype] = "";
    }
  }
  return cluster;
}

/// Numbers stay numbers; everything else is text and the reader judges it.
Result<ordered_json> value_like(const ordered_json& old, const std::string& text,
                                const std::string& where) {
  if (!old.is_number()) return ordered_json(text);
  const ordered_json parsed = ordered_json::parse(text, nullptr, false);
  if (parsed.is_number()) return parsed;
  return Error{"wrong-type", fmt::format("'{}' is not a number", text.substr(0, 60)), where,
               "write a number without a unit"};
}

Status set_field(ordered_json& cluster, const std::string& path, const std::string& value,
                 const std::string& where) {
  std::map<std::string, Field> fields;
  collect_leaves(with_absent_fields(cluster), "", Pointer(), fields);
  const auto found = fields.find(flattened(path));
  if (found == fields.end()) {
    std::vector<std::string> names;
    for (const auto& [flat, field] : fields) {
      if (!field.shown.starts_with("groups.") || path.starts_with("groups"))
        names.push_back(field.shown);
    }
    return Error{"unknown-path", fmt::format("a cluster has no field '{}'", path.substr(0, 60)),
                 where, fmt::format("nearest: '{}'", nearest_name(path, names))};
  }
  for (const Pointer& place : found->second.places) {
    const bool present = cluster.contains(place);
    BAYPLAN_TRY(json, value_like(present ? cluster[place] : ordered_json(""), value, where));
    // A link that did not exist needs its other half before it can be read.
    if (!present && place.back() == "bandwidth") cluster[place.parent_pointer()]["latency"] = "0s";
    cluster[place] = json;
  }
  return {};
}

}  // namespace

Result<Cluster> apply_settings(const Cluster& cluster, std::span<const std::string> settings) {
  Cluster current = cluster;
  for (const std::string& setting : settings) {
    const std::string where = fmt::format("--set {}", setting.substr(0, 120));
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == setting.size()) {
      return Error{"bad-setting", "is not PATH=VALUE", where,
                   "write, for example, --set host_memory=256GiB"};
    }
    const std::string path = setting.substr(0, equals);
    const std::string value = setting.substr(equals + 1);
    ordered_json json = write_cluster(current);
    const std::size_t at = value.find('@');
    const std::string flat = flattened(path);
    const bool sized_disk = at != std::string::npos && (flat == "nvme" || flat.ends_with("_nvme"));
    BAYPLAN_RETURN_IF_ERROR(
        set_field(json, path, value.substr(0, sized_disk ? at : value.size()), where));
    if (sized_disk) {
      BAYPLAN_RETURN_IF_ERROR(set_field(json, path + "_read", value.substr(at + 1), where));
      BAYPLAN_RETURN_IF_ERROR(set_field(json, path + "_write", value.substr(at + 1), where));
    }
    const HardwareLookup no_presets = [](std::string_view name, const std::string& place) {
      return Result<HardwarePreset>(
          Error{"wrong-type", fmt::format("'{}' is not a device", name), place, "set its fields"});
    };
    BAYPLAN_TRY(changed,
                read_cluster(JsonCursor(json_document(nlohmann::json(json), where)), no_presets));
    changed.name = cluster.name;
    current = changed;
  }
  return current;
}

}  // namespace bayplan
