#include <chrono>
#include <numeric>

#include "executor/rank_body.h"
#include "executor/run.h"
#include "executor/trace/run_output.h"
#include "executor/trace/signal_status.h"
#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// What rank 0 tells the others before anything else.
struct Start {
  std::int64_t ticks = 0;  // rank 0's clock
  std::uint64_t fingerprint = 0;
  std::int64_t refused = 0;  // rank 0 cannot start
};

Start agree_on_start(Communicator& communicator, const Program& program, bool refused) {
  const CallSite site{0, "agreement on the start", Purpose::kNone};
  communicator.barrier(site);
  Start start;
  start.ticks = Clock::now().time_since_epoch().count();
  start.fingerprint = program.fingerprint;
  start.refused = refused ? 1 : 0;
  std::vector<int> all(static_cast<std::size_t>(communicator.world_size()));
  std::iota(all.begin(), all.end(), 0);
  communicator.broadcast(site, all, reinterpret_cast<std::byte*>(&start), sizeof start, 0);
  return start;
}

/// Start of the ranks' common time. Processes of one machine share a clock, so rank 0's reading
/// serves them all; a machine whose clock differs by more than a moment starts its own.
Clock::time_point epoch_of(const Start& start) {
  constexpr auto kSameClock = std::chrono::seconds(1);
  const Clock::time_point own = Clock::now();
  const Clock::time_point root{Clock::duration(start.ticks)};
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
  const Status prepared =
      rank == 0 ? RunOutput::prepare(options.output_directory, options.dump_state) : Status();
  try {
    const Start start = agree_on_start(communicator, program, !prepared.ok());
    if (!prepared.ok()) return prepared.error();
    if (start.refused != 0) {
      return Error{"run-aborted", "rank 0 cannot start; its message says why", "rank 0",
                   "mend what rank 0 names"};
    }
    if (start.fingerprint != program.fingerprint) {
      throw ExecutorError(rank, 0, "agreement on the start",
                          "its program has another fingerprint than rank 0's: all ranks must be "
                          "given the same plan and run the same build",
                          FailureKind::kMismatch, 0);
    }
    const auto device = devices(rank);
    RankRunner runner(program, rank, *device, communicator, options.fault, epoch_of(start));
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
