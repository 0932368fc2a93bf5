#include "tools/bayplan/answer.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "planner/formats/quantity.h"
#include "planner/program/lower.h"
#include "simulator/report/summary.h"
#include "tools/bayplan/progress_bar.h"
#include "tools/bayplan/report.h"
#include "tools/bayplan/score.h"

namespace bayplan::cli {

using nlohmann::ordered_json;

Result<Answer> judge_program(const Plan& plan, Program program, const Subject& subject,
                             bool timeline) {
  Answer answer;
  answer.plan = plan;
  answer.program = std::move(program);
  BAYPLAN_RETURN_IF_ERROR(verify_sound(answer.program));
  answer.needs = memory_needs(answer.program, subject.cluster);
  BAYPLAN_TRY(overhead, overhead_interval(subject.cluster));
  answer.probability = probability_fits(answer.needs, overhead,
                                        fits_host(answer.needs, answer.program, subject.cluster));
  answer.verdict = verdict_of(answer.probability);
  BAYPLAN_TRY(simulation, simulate_fully(answer.program, subject, timeline));
  answer.simulation = std::move(simulation);
  return answer;
}

Result<Answer> find_answer(const Request& request) {
  const Subject& subject = request.subject;
  SearchSpace space = request.space;
  BAYPLAN_TRY(overhead, overhead_interval(subject.cluster));
  space.margin = safe_margin(overhead);
  const auto start = std::chrono::steady_clock::now();
  SearchResult search;
  {
    ProgressBar bar;
    BAYPLAN_TRY(found,
                search_layouts(request.base, space, subject.graph, subject.cluster,
                               step_time_score(subject), [&](std::size_t done, std::size_t all) {
                                 bar.show(static_cast<double>(done) / static_cast<double>(all),
                                          fmt::format("layout {} of {}", done + 1, all));
                               }));
    search = std::move(found);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Plan plan = search.evaluated[search.best.value_or(search.roomiest)].plan;
  BAYPLAN_TRY(program, lower(plan, subject.graph, subject.cluster));
  BAYPLAN_TRY(answer, judge_program(plan, std::move(program), subject, false));
  answer.search = std::move(search);
  answer.search_seconds = seconds;
  return std::move(answer);
}

ordered_json answer_json(const Answer& answer, const Subject& subject, const std::string& model) {
  ordered_json ranks = ordered_json::array();
  for (const RankMemoryNeed& need : answer.needs) ranks.push_back(memory_json(need));
  ordered_json out;
  out["verdict"] = verdict_name(answer.verdict);
  out["probability_fits"] = answer.probability;
  out["fingerprint"] = fingerprint_text(answer.program.fingerprint);
  out["model"] = model_json(subject, model);
  out["job"] = write_job(answer.plan.job);
  out["layout"] = layout_json(answer.plan);
  out["cluster"] = cluster_json(subject.cluster);
  out["peak"] = memory_json(answer.needs[tightest(answer.needs)]);
  out["ranks"] = std::move(ranks);
  out["host"] = host_json(answer.needs, answer.program, subject.cluster);
  out["nvme"] = {{"per_node_bytes", 0}};
  out["step"] = step_json(answer.simulation, subject.cluster);
  out["fixes"] = ordered_json::array();
  out["warnings"] = subject.warnings;
  out["assumptions"] = assumptions_json(subject.assumptions);
  return out;
}

ordered_json search_json(const Answer& answer) {
  const SearchResult& search = answer.search;
  ordered_json best = nullptr;
  if (search.best) best = search.evaluated[*search.best].step.value;
  // An exhaustive search of its space proves nothing about what lies outside, and no bound is
  // computed inside it: the gap stays open.
  return {{"evaluated", search.evaluated.size()},
          {"seconds", answer.search_seconds},
          {"best", best},
          {"lower_bound", nullptr},
          {"gap", nullptr},
          {"space", search.space}};
}

std::string answer_text(const Answer& answer, const Subject& subject) {
  const Architecture& a = subject.model.architecture;
  const RankMemoryNeed& worst = answer.needs[tightest(answer.needs)];
  std::string out = fmt::format("model    {}: {} parameters, {} layers, hidden {}\n", a.name,
                                short_count(static_cast<double>(parameter_count(subject.graph))),
                                a.layers, a.hidden);
  out += fmt::format("cluster  {}: {} x {}\n", subject.cluster.name, subject.cluster.device_count(),
                     subject.cluster.groups.front().device.name);
  out += fmt::format("layout   {}\n", layout_text(answer.plan));
  out += fmt::format("verdict  {} (probability {:.2f}): {} of {} on rank {}, {} {}\n",
                     verdict_name(answer.verdict), answer.probability, short_bytes(worst.device),
                     short_bytes(worst.capacity), worst.rank,
                     short_bytes(worst.capacity < worst.device ? worst.device - worst.capacity
                                                               : worst.capacity - worst.device),
                     worst.capacity < worst.device ? "short" : "free");
  return out + "\n" + memory_table(answer.needs) + "\n" +
         sim::summary_text(answer.program, answer.simulation);
}

Outcome outcome_of(const Error& error) {
  return Outcome(error, error.code == "not-verified" ? kExitNotVerified : kExitBadInput);
}

}  // namespace bayplan::cli
