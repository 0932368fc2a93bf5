#include <chrono>

#include "executor/rank_body.h"
#include "executor/run.h"
#include "executor/trace/run_output.h"
#include "executor/trace/signal_status.h"
#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// Start of the ranks' common time. Processes of one machine share a clock, so rank 0's reading
/// serves them all; a machine whose clock differs by more than the ranks can have drifted apart
/// starts its own, right behind the barrier.
Clock::time_point common_epoch(Communicator& communicator) {
  const CallSite site{0, "agreement on the start time", Purpose::kNone};
  communicator.barrier(site);
  const Clock::time_point own = Clock::now();
  std::int64_t ticks = own.time_since_epoch().count();
  std::vector<int> all;
  for (int r = 0; r < communicator.world_size(); ++r) all.push_back(r);
  communicator.broadcast(site, all, reinterpret_cast<std::byte*>(&ticks), sizeof ticks, 0);
  const Clock::time_point root{Clock::duration(ticks)};
  constexpr auto kSameClock = std::chrono::seconds(1);
  return own - root < kSameClock && root - own < kSameClock ? root : own;
}

}  // namespace

Result<RunResult> run_rank(const Program& program, const DeviceFactory& devices,
                           Communicator& communicator, const DataSource& train,
                           const DataSource* eval, const RunOptions& options) {
  const Job job{program, devices, train, eval, options};
  BAYPLAN_RETURN_IF_ERROR(check_options(job));
  const int rank = communicator.rank();
  BAYPLAN_CHECK(communicator.world_size() == program.world_size(),
                "the communicator has another world size than the program");
  if (rank == 0) BAYPLAN_RETURN_IF_ERROR(RunOutput::prepare(options.output_directory));
  try {
    const auto device = devices(rank);
    RankRunner runner(program, rank, *device, communicator, options.fault,
                      common_epoch(communicator));
    const SignalStatus signal_status(program, rank, runner.status(), communicator);
    Outcome outcome = run_body(job, runner, *device, communicator);
    const std::vector<RankReport> reports = gather_reports(communicator, outcome.report);
    if (rank != 0) return RunResult{};
    return combine(job, std::move(outcome), reports);
  } catch (const std::exception& cause) {
    const ExecutorError failure = as_executor_error(rank, cause);
    communicator.abort(describe(failure));
    return to_error(failure, failure.awaited >= 0 ? failure.awaited : rank, "");
  }
}

}  // namespace bayplan::exec
