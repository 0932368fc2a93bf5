// `bayplan fit`: does the job fit, where is the peak, what would make it fit?
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "planner/formats/quantity.h"
#include "tools/bayplan/answer.h"
#include "tools/bayplan/command.h"
#include "tools/bayplan/fixes.h"
#include "tools/bayplan/report.h"

namespace bayplan::cli {
namespace {

nlohmann::ordered_json fixes_json(const std::vector<Fix>& fixes) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const Fix& fix : fixes) {
    nlohmann::ordered_json ratio = nullptr;
    if (fix.step_ratio > 0.0) ratio = fix.step_ratio;
    out.push_back({{"change", fix.change},
                   {"kind", fix.kind},
                   {"exactness", fix.exactness},
                   {"peak_bytes", fix.peak.value},
                   {"step_ratio", ratio},
                   {"fits", fix.fits}});
  }
  return out;
}

std::string fixes_text(const std::vector<Fix>& fixes) {
  if (fixes.empty()) return "no single change that was tried makes it fit\n";
  std::string out = fixes.front().fits ? "changes that make it fit:\n"
                                       : "nothing that was tried fits; closest:\n";
  for (const Fix& fix : fixes) {
    out += fmt::format("  {:<44} peak {:>10}", fix.change, short_bytes(fix.peak));
    if (fix.step_ratio > 0.0) out += fmt::format(", step x{:.2f}", fix.step_ratio);
    out += fmt::format(", {}\n", fix.exactness);
  }
  return out;
}

Outcome run_fit(const GivenOptions& given, bool json) {
  auto request = make_request(given, Defaults::kSearched);
  if (!request) return request.error();
  auto answer = find_answer(*request);
  if (!answer) return outcome_of(answer.error());
  std::vector<Fix> fixes;
  if (answer->verdict != Verdict::kFits) {
    auto found = find_fixes(*request, *answer);
    if (!found) return found.error();
    fixes = *found;
  }
  if (json) {
    nlohmann::ordered_json out = {{"schema", "bayplan.fit/1"}};
    out.update(answer_json(*answer, request->subject, given.model));
    out["fixes"] = fixes_json(fixes);
    out["search"] = search_json(*answer);
    print_json(out);
  } else {
    fmt::print("{}", answer_text(*answer, request->subject));
    if (answer->verdict != Verdict::kFits) fmt::print("\n{}", fixes_text(fixes));
    fmt::print("\nchosen from {} layouts: {}\n{}", answer->search.evaluated.size(),
               answer->search.space, notes_text(request->subject));
  }
  return answer->verdict == Verdict::kDoesNotFit ? kExitDoesNotFit : kExitOk;
}

}  // namespace

std::function<Outcome(bool)> declare_fit(CLI::App& app) {
  auto given = std::make_shared<GivenOptions>();
  declare_model_and_cluster(app, *given, true);
  declare_job_options(app, *given);
  declare_layout_options(app, *given, Defaults::kSearched);
  declare_cluster_options(app, *given);
  return [given](bool json) { return run_fit(*given, json); };
}

}  // namespace bayplan::cli
