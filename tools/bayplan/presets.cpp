// `bayplan presets`: what is known, with sources.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "models/build_model.h"
#include "models/clusters.h"
#include "models/preset_names.h"
#include "models/registry.h"
#include "models/runtimes.h"
#include "planner/formats/cluster_json.h"
#include "planner/formats/nearest.h"
#include "planner/formats/quantity.h"
#include "planner/schedule/schedule.h"
#include "tools/bayplan/command.h"
#include "tools/bayplan/report.h"

namespace bayplan::cli {
namespace {

using nlohmann::ordered_json;

Result<ordered_json> describe_model(const std::string& name) {
  BAYPLAN_TRY(model, resolve_model(name));
  const Architecture& a = model.architecture;
  const std::int64_t parameters = parameter_count(build_model(a, false));
  ordered_json out = {{"name", name},
                      {"family", a.family},
                      {"parameters", parameters},
                      {"active_parameters", parameters},
                      {"layers", a.layers},
                      {"hidden", a.hidden},
                      {"heads", a.heads},
                      {"kv_heads", a.kv_heads},
                      {"head_dim", a.head_dim},
                      {"ffn", a.ffn},
                      {"vocab", a.vocab},
                      {"seq", a.max_seq},
                      {"tied", a.tied},
                      {"attention_window",
                       model.attention_window > 0 ? ordered_json(model.attention_window) : nullptr},
                      {"not_executed", model.not_executed},
                      {"source", model_source(name)}};
  return out;
}

Result<ordered_json> describe_hardware(const std::string& name) {
  BAYPLAN_TRY(preset, find_hardware_preset(name, "presets hardware"));
  Cluster cluster;
  cluster.name = name;
  cluster.groups = {preset.group};
  cluster.inter_node = preset.inter_node;
  const ordered_json written = write_cluster(cluster);
  ordered_json out = {{"name", name}, {"device", written["groups"][0]["device"]}};
  out["node"] = written["groups"][0];
  for (const char* field : {"name", "nodes", "device"}) out["node"].erase(field);
  out["inter_node"] = written["inter_node"];
  // The preset was read by its strict reader above, so its text parses.
  out["sources"] = ordered_json::parse(find_preset_file("models/hardware/", name)->text)["sources"];
  return out;
}

Result<ordered_json> describe_runtime(const std::string& name) {
  BAYPLAN_TRY(runtime, find_runtime(name));
  return ordered_json{{"name", runtime.name},
                      {"description", runtime.description},
                      {"precisions", runtime.precisions},
                      {"zero", runtime.zero},
                      {"schedules", runtime.schedules},
                      {"device_overhead",
                       {{"below", exact_bytes(runtime.overhead_below)},
                        {"above", exact_bytes(runtime.overhead_above)}}},
                      {"source", runtime.source}};
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleSpec& s : schedules()) names.emplace_back(s.name);
  return names;
}

Result<ordered_json> describe_schedule(const std::string& name) {
  for (const ScheduleSpec& s : schedules()) {
    if (s.name != name) continue;
    return ordered_json{{"name", s.name},
                        {"description", s.description},
                        {"min_chunks", s.min_chunks},
                        {"max_chunks", s.max_chunks}};
  }
  const std::vector<std::string> names = schedule_names();
  return Error{
      "unknown-preset", fmt::format("no schedule is called '{}'", name.substr(0, 80)),
      "presets schedules",
      fmt::format("nearest: '{}'; known: {}", nearest_name(name, names), fmt::join(names, ", "))};
}

struct Kind {
  std::string name;
  std::vector<std::string> (*names)();
  Result<ordered_json> (*describe)(const std::string& name);
  std::string (*line)(const ordered_json& entry);  // of the list
};

std::string model_line(const ordered_json& m) {
  return fmt::format("{:<20} {:>7} parameters, {} layers, hidden {}, {} tokens",
                     m["name"].get<std::string>(), short_count(m["parameters"].get<double>()),
                     m["layers"].get<int>(), m["hidden"].get<int>(), m["seq"].get<int>());
}
std::string hardware_line(const ordered_json& h) {
  const ordered_json& d = h["device"];
  std::string peaks;
  for (const auto& item : d["peak"].items()) {
    peaks += fmt::format("{}{} {}", peaks.empty() ? "" : ", ", item.key(),
                         item.value().get<std::string>());
  }
  const auto memory = parse_bytes(d["memory"].get<std::string>(), "memory");
  return fmt::format("{:<20} {:>9}, {}, {}", h["name"].get<std::string>(), short_bytes(*memory),
                     d["memory_bandwidth"].get<std::string>(), peaks);
}
std::string described_line(const ordered_json& r) {
  return fmt::format("{:<20} {}", r["name"].get<std::string>(),
                     r["description"].get<std::string>());
}

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> table = {
      {"models", [] { return model_preset_names(); }, describe_model, model_line},
      {"hardware", [] { return hardware_preset_names(); }, describe_hardware, hardware_line},
      {"runtimes", [] { return runtime_names(); }, describe_runtime, described_line},
      {"schedules", schedule_names, describe_schedule, described_line},
  };
  return table;
}

struct PresetArguments {
  std::string kind;
  std::string name;
};

Outcome list_kind(const Kind& kind, bool json) {
  ordered_json entries = ordered_json::array();
  for (const std::string& name : kind.names()) {
    auto entry = kind.describe(name);
    if (!entry) return entry.error();
    entries.push_back(*entry);
  }
  if (json) {
    print_json({{"schema", "bayplan.presets/1"}, {kind.name, entries}});
  } else {
    for (const ordered_json& entry : entries) fmt::print("{}\n", kind.line(entry));
  }
  return kExitOk;
}

Outcome run_presets(const PresetArguments& arguments, bool json) {
  if (arguments.kind.empty()) {
    ordered_json all = {{"schema", "bayplan.presets/1"}};
    for (const Kind& kind : kinds()) {
      all[kind.name] = kind.names();
      if (!json) fmt::print("{}: {}\n", kind.name, fmt::join(kind.names(), ", "));
    }
    if (json) print_json(all);
    return kExitOk;
  }
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) {
    names.push_back(kind.name);
    if (kind.name != arguments.kind) continue;
    if (arguments.name.empty()) return list_kind(kind, json);
    auto entry = kind.describe(arguments.name);
    if (!entry) return entry.error();
    ordered_json out = {{"schema", "bayplan.preset/1"}};
    out.update(*entry);
    if (json) {
      print_json(out);
      return kExitOk;
    }
    for (const auto& item : entry->items()) {
      fmt::print("{:<18} {}\n", item.key(),
                 item.value().is_string() ? item.value().get<std::string>() : item.value().dump());
    }
    return kExitOk;
  }
  return Error{"unknown-value",
               fmt::format("'{}' is no kind of preset", arguments.kind.substr(0, 60)), "presets",
               fmt::format("nearest: '{}'; kinds: {}", nearest_name(arguments.kind, names),
                           fmt::join(names, ", "))};
}

}  // namespace

std::function<Outcome(bool)> declare_presets(CLI::App& app) {
  auto arguments = std::make_shared<PresetArguments>();
  app.add_option("KIND", arguments->kind,
                 "models, hardware, runtimes or schedules (default: names of all)")
      ->type_name("");
  app.add_option("NAME", arguments->name, "One preset; of models any MODEL, a config.json included")
      ->type_name("");
  return [arguments](bool json) { return run_presets(*arguments, json); };
}

}  // namespace bayplan::cli
