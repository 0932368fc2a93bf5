// `bayplan simulate`: predicts time and memory of a plan, on its cluster or another one.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "planner/formats/text_file.h"
#include "planner/formats/timeline_json.h"
#include "simulator/report/perfetto.h"
#include "tools/bayplan/answer.h"
#include "tools/bayplan/command.h"
#include "tools/bayplan/report.h"

namespace bayplan::cli {
namespace {

struct SimulateArguments {
  GivenOptions given;
  std::string plan;
  std::string timeline;
  std::string trace;
};

Status write_files(const SimulateArguments& arguments, const Answer& answer) {
  const Timeline& timeline = answer.simulation.timeline;
  if (!arguments.timeline.empty()) {
    BAYPLAN_RETURN_IF_ERROR(write_timeline_file(arguments.timeline, timeline, answer.program));
  }
  if (!arguments.trace.empty()) {
    BAYPLAN_RETURN_IF_ERROR(
        write_text_file(arguments.trace, sim::perfetto_trace(answer.program, timeline)));
  }
  return {};
}

Outcome run_simulate(const SimulateArguments& arguments, bool json) {
  auto loaded = load_plan(arguments.plan, arguments.given.cluster, arguments.given);
  if (!loaded) return loaded.error();
  const Subject& subject = loaded->subject;
  auto answer = judge_program(loaded->plan, std::move(loaded->program), subject, true);
  if (!answer) return outcome_of(answer.error());
  if (const Status written = write_files(arguments, *answer); !written) return written.error();
  if (json) {
    nlohmann::ordered_json out = {{"schema", "bayplan.simulate/1"}};
    out.update(answer_json(*answer, subject, loaded->plan.model));
    out["timeline"] =
        arguments.timeline.empty() ? nullptr : nlohmann::ordered_json(arguments.timeline);
    out["trace"] = arguments.trace.empty() ? nullptr : nlohmann::ordered_json(arguments.trace);
    print_json(out);
  } else {
    fmt::print("{}\n{}", answer_text(*answer, subject), notes_text(subject));
    for (const std::string& file : {arguments.timeline, arguments.trace}) {
      if (!file.empty()) fmt::print("written: {}\n", file);
    }
  }
  return answer->verdict == Verdict::kDoesNotFit ? kExitDoesNotFit : kExitOk;
}

}  // namespace

std::function<Outcome(bool)> declare_simulate(CLI::App& app) {
  auto arguments = std::make_shared<SimulateArguments>();
  app.add_option("PLAN", arguments->plan, "Plan file")->required()->type_name("");
  app.add_option("CLUSTER", arguments->given.cluster, "Another cluster than the plan's")
      ->type_name("");
  app.add_option("--timeline", arguments->timeline,
                 "Write the predicted timeline, for `compare` (default: none)")
      ->type_name("FILE");
  app.add_option("--trace", arguments->trace,
                 "Write a trace that ui.perfetto.dev opens (default: none)")
      ->type_name("FILE");
  declare_cluster_options(app, arguments->given);
  return [arguments](bool json) { return run_simulate(*arguments, json); };
}

}  // namespace bayplan::cli
