#include "simulator/engine/simulate.h"

#include <algorithm>

#include "simulator/cost/program_flops.h"
#include "simulator/engine/engine.h"
#include "simulator/engine/prepare.h"

namespace bayplan::sim {
namespace {

/// Sum over ranks of the matrix rate of their devices in the compute dtype; 0 if any is unknown.
double peak_flops(const Program& program, const Cluster& cluster) {
  double sum = 0.0;
  for (int rank = 0; rank < program.world_size(); ++rank) {
    const NodeGroup& group =
        cluster.groups[static_cast<std::size_t>(place_of(cluster, rank).group)];
    const auto peak = group.device.peak.find(program.job.precision.compute);
    if (peak == group.device.peak.end()) return 0.0;
    sum += peak->second.value;
  }
  return sum;
}

/// The host issues in list order, so the calls of the graph are the calls issued.
std::vector<IssuedCall> issued_calls(const ClassGraph& graph) {
  std::vector<IssuedCall> calls;
  for (const Call& c : graph.calls) calls.push_back({InstructionId(c.first), c.count});
  return calls;
}

Status check(const Program& program, const Cluster& cluster, const SimulateOptions& options) {
  if (cluster.device_count() < program.world_size()) {
    return Error{"cluster-too-small",
                 "the program has " + std::to_string(program.world_size()) +
                     " ranks, but the cluster " + cluster.name + " has " +
                     std::to_string(cluster.device_count()) + " devices",
                 "cluster", "choose a larger cluster, or plan again for this one"};
  }
  for (const RankClass& c : program.classes) {
    for (const Instruction& i :
         c.programs[static_cast<std::size_t>(options.program)].instructions) {
      if (!i.predicate.valid() && !i.run_time_count.valid()) continue;
      return Error{"unsupported-program",
                   "an instruction has a predicate or a run-time count, which are not simulated",
                   "program", "simulate a plan without them"};
    }
  }
  if (options.steps < 1) {
    return Error{"bad-steps",
                 "steps is " + std::to_string(options.steps) + ", which is less than 1", "steps",
                 "simulate at least one step"};
  }
  return {};
}

/// Keeps all clocks far from the end of their range: the bound counts everything as if no two
/// instructions overlapped.
Status check_duration(const Prepared& prepared, int steps) {
  constexpr double kMost = 1e18;  // ps: 11 days
  double message = 0.0;
  for (const CommunicationCost& c : prepared.match_costs) {
    message = std::max(message, static_cast<double>(c.latency.value) +
                                    static_cast<double>(c.busy_latency.value) +
                                    static_cast<double>(c.work.value) * c.slowdown);
  }
  double total = 0.0;
  for (const ClassCosts& costs : prepared.costs) {
    for (const ComputeCost& c : costs.calls) {
      total += static_cast<double>(c.time.value) * c.slowdown + static_cast<double>(c.issue.value);
    }
  }
  for (const ClassGraph& graph : prepared.graphs) {
    total += message * static_cast<double>(graph.endpoints.size());
  }
  if (total * steps <= kMost) return {};
  return Error{"time-overflow", "the simulated time would pass 11 days", "cluster",
               "check the rates and efficiencies of devices and links, and their units"};
}

Result<Picoseconds> steady_step(const Prepared& prepared, const SimulateOptions& options,
                                double compute, double communication) {
  EngineOptions engine{options.steps, false, compute, communication};
  BAYPLAN_TRY(run, run_engine(prepared, engine));
  return run.step_times.back();
}

}  // namespace

Result<SimulationResult> simulate(const Program& program, const Cluster& cluster,
                                  const CostModel& costs, const SimulateOptions& options) {
  BAYPLAN_RETURN_IF_ERROR(check(program, cluster, options));
  const Prepared prepared = prepare(program, options.program, cluster, costs);
  BAYPLAN_RETURN_IF_ERROR(check_duration(prepared, options.steps));
  BAYPLAN_TRY(run, run_engine(prepared, {options.steps, options.record, 1.0, 1.0}));

  SimulationResult result;
  result.timeline.fingerprint = program.fingerprint;
  result.timeline.program = options.program;
  result.timeline.events = std::move(run.events);
  result.timeline.step_times = std::move(run.step_times);
  result.events = run.completed;
  result.provenance = costs.uncertainty.provenance;
  if (options.record && options.record_memory) add_memory_samples(program, result.timeline);

  const Picoseconds step = result.timeline.step_times.back();
  result.step_time = {to_seconds(step), to_seconds(step), to_seconds(step)};
  const CostUncertainty& u = costs.uncertainty;
  if (options.interval && (u.compute > 0.0 || u.communication > 0.0)) {
    BAYPLAN_TRY(low, steady_step(prepared, options, 1.0 - u.compute, 1.0 - u.communication));
    BAYPLAN_TRY(high, steady_step(prepared, options, 1.0 + u.compute, 1.0 + u.communication));
    result.step_time.low = to_seconds(std::min(low, step));
    result.step_time.high = to_seconds(std::max(high, step));
  }
  const double seconds = result.step_time.mid.value;
  if (seconds > 0.0) {
    const double tokens =
        static_cast<double>(program.job.global_batch) * static_cast<double>(program.job.seq);
    result.tokens_per_second = tokens / seconds;
    const ProgramFlops flops = program_flops(program, options.program);
    if (const double peak = peak_flops(program, cluster); peak > 0.0) {
      result.mfu = flops.model.value / (seconds * peak);
      result.hfu = flops.executed.value / (seconds * peak);
    }
  }
  std::vector<RankMemory> class_memory;
  for (const RankClass& c : program.classes) {
    class_memory.push_back(replay_arena(c, options.program).memory);
  }
  for (const std::int32_t c : program.rank_class) {
    result.memory.push_back(class_memory[static_cast<std::size_t>(c)]);
    if (options.record)
      result.issued.push_back(issued_calls(prepared.graphs[static_cast<std::size_t>(c)]));
  }
  if (options.record) result.breakdown = break_down(program, result.timeline, options.steps - 1);
  return result;
}

}  // namespace bayplan::sim
