// `bayplan plan`: the fastest layout that fits, as a plan file.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "planner/formats/quantity.h"
#include "planner/formats/text_file.h"
#include "tools/bayplan/answer.h"
#include "tools/bayplan/command.h"
#include "tools/bayplan/report.h"

namespace bayplan::cli {
namespace {

struct PlanOptions {
  GivenOptions given;
  std::string output;
};

Outcome run_plan(const PlanOptions& options, bool json) {
  auto request = make_request(options.given, Defaults::kSearched);
  if (!request) return request.error();
  auto answer = find_answer(*request);
  if (!answer) return outcome_of(answer.error());
  const Subject& subject = request->subject;
  const bool fits = answer->verdict != Verdict::kDoesNotFit;
  if (fits && !options.output.empty()) {
    const PlanFile file{answer->plan, subject.model, subject.cluster};
    const Status written = write_text_file(options.output, write_plan(file).dump(2) + "\n");
    if (!written) return written.error();
  }
  if (json) {
    nlohmann::ordered_json out = {{"schema", "bayplan.plan-result/1"}};
    out.update(answer_json(*answer, subject, options.given.model));
    out["search"] = search_json(*answer);
    out["output"] =
        fits && !options.output.empty() ? nlohmann::ordered_json(options.output) : nullptr;
    print_json(out);
  } else {
    fmt::print("{}\nfastest of {} layouts in {}: {}\n{}", answer_text(*answer, subject),
               answer->search.evaluated.size(), short_duration(Seconds(answer->search_seconds)),
               answer->search.space, notes_text(subject));
    if (!fits) {
      fmt::print("nothing fits; 'bayplan fit' says what would\n");
    } else if (!options.output.empty()) {
      fmt::print("written: {}\n", options.output);
    }
  }
  return fits ? kExitOk : kExitDoesNotFit;
}

}  // namespace

std::function<Outcome(bool)> declare_plan(CLI::App& app) {
  auto options = std::make_shared<PlanOptions>();
  declare_model_and_cluster(app, options->given, true);
  app.add_option("-o", options->output, "Plan file to write (default: none is written)")
      ->type_name("FILE");
  declare_job_options(app, options->given);
  declare_layout_options(app, options->given, Defaults::kSearched);
  declare_cluster_options(app, options->given);
  return [options](bool json) { return run_plan(*options, json); };
}

}  // namespace bayplan::cli
