#include "tools/bayplan/score.h"

#include <fmt/format.h>

#include "planner/program/verify.h"
#include "simulator/cost/cost_model.h"

namespace bayplan::cli {

ScoringCallback step_time_score(const Subject& subject) {
  return [&subject](const Program& program) -> Result<Seconds> {
    sim::SimulateOptions options;
    options.record = false;
    options.record_memory = false;
    options.interval = false;
    const sim::CostModel costs = sim::analytic_costs(program, subject.cluster, subject.calibration);
    BAYPLAN_TRY(result, sim::simulate(program, subject.cluster, costs, options));
    return result.step_time.mid;
  };
}

Result<sim::SimulationResult> simulate_fully(const Program& program, const Subject& subject,
                                             bool timeline) {
  sim::SimulateOptions options;
  options.record = true;
  options.record_memory = timeline;
  const sim::CostModel costs = sim::analytic_costs(program, subject.cluster, subject.calibration);
  return sim::simulate(program, subject.cluster, costs, options);
}

Status verify_sound(const Program& program) {
  const std::vector<VerifyFinding> findings = verify(program);
  if (findings.empty()) return {};
  const VerifyFinding& first = findings.front();
  return Error{"not-verified",
               fmt::format("{}: {}", violation_name(first.violation), first.message),
               fmt::format("{} of rank {}", program_kind_name(first.program), first.rank),
               "this program is not run; 'bayplan verify' lists all findings"};
}

}  // namespace bayplan::cli
