// `bayplan compare`: a predicted timeline against a measured one.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "planner/formats/timeline_json.h"
#include "simulator/report/compare.h"
#include "tools/bayplan/answer.h"
#include "tools/bayplan/command.h"
#include "tools/bayplan/report.h"

namespace bayplan::cli {
namespace {

using nlohmann::ordered_json;

struct CompareArguments {
  GivenOptions given;
  std::string predicted;
  std::string measured;
};

/// The timeline that `path` stands for: the folder of a run, a timeline file, or a plan, which is
/// simulated here.
Result<TimelineFile> timeline_of(const std::string& path, const GivenOptions& given) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return read_timeline_file(path + "/timeline.json");
  BAYPLAN_TRY(document, read_json_file(path));
  const JsonCursor at(document);
  if (at.has("schema") && at.at("schema").is_string() &&
      *at.at("schema").string() == "bayplan.plan/1") {
    BAYPLAN_TRY(loaded, load_plan(path, "", given));
    BAYPLAN_TRY(answer,
                judge_program(loaded.plan, std::move(loaded.program), loaded.subject, true));
    TimelineFile file;
    file.labels = timeline_labels(answer.program, ProgramKind::kTrainStep);
    file.timeline = std::move(answer.simulation.timeline);
    return file;
  }
  return read_timeline_file(path);
}

ordered_json rows_json(const std::vector<sim::ComparisonRow>& rows) {
  ordered_json out = ordered_json::array();
  for (const sim::ComparisonRow& row : rows) {
    out.push_back({{"name", row.name},
                   {"instructions", row.instructions},
                   {"predicted_s", row.predicted.value},
                   {"measured_s", row.measured.value},
                   {"ratio", row.ratio()}});
  }
  return out;
}

Outcome run_compare(const CompareArguments& arguments, bool json) {
  auto predicted = timeline_of(arguments.predicted, arguments.given);
  if (!predicted) return outcome_of(predicted.error());
  auto measured = timeline_of(arguments.measured, arguments.given);
  if (!measured) return outcome_of(measured.error());
  auto comparison =
      sim::compare_timelines(measured->labels, predicted->timeline, measured->timeline);
  if (!comparison) return comparison.error();
  if (json) {
    print_json({{"schema", "bayplan.compare/1"},
                {"fingerprint", fingerprint_text(measured->timeline.fingerprint)},
                {"step",
                 {{"predicted_s", comparison->predicted_step.value},
                  {"measured_s", comparison->measured_step.value},
                  {"ratio", comparison->step_ratio()}}},
                {"kinds", rows_json(comparison->kinds)},
                {"streams", rows_json(comparison->streams)},
                {"ranks", rows_json(comparison->ranks)}});
  } else {
    fmt::print("{}", sim::comparison_text(*comparison));
  }
  return kExitOk;
}

}  // namespace

std::function<Outcome(bool)> declare_compare(CLI::App& app) {
  auto arguments = std::make_shared<CompareArguments>();
  app.add_option("PREDICTED", arguments->predicted,
                 "Plan file (simulated here) or timeline of `simulate --timeline`")
      ->required()
      ->type_name("");
  app.add_option("MEASURED", arguments->measured, "Folder of `run --out`, or a timeline file")
      ->required()
      ->type_name("");
  declare_cluster_options(app, arguments->given);
  return [arguments](bool json) { return run_compare(*arguments, json); };
}

}  // namespace bayplan::cli
