#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "executor/comm/local.h"
#include "executor/rank_body.h"
#include "executor/run.h"
#include "executor/trace/run_output.h"

namespace bayplan::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// The ranks of one process: stops all when one fails, and finds out which one to blame.
class LocalRanks {
 public:
  LocalRanks(const Job& job, std::vector<std::unique_ptr<Communicator>> communicators)
      : job_(job),
        communicators_(std::move(communicators)),
        runners_(communicators_.size(), nullptr),
        outcomes_(communicators_.size()) {}

  Result<RunResult> run() {
    const Clock::time_point epoch = Clock::now();
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < communicators_.size(); ++rank) {
      threads.emplace_back([this, rank, epoch] { run_rank_thread(rank, epoch); });
    }
    for (std::thread& thread : threads) thread.join();
    if (failure_) return *failure_;
    std::vector<RankReport> reports;
    for (const Outcome& outcome : outcomes_) reports.push_back(outcome.report);
    return combine(job_, std::move(outcomes_[0]), reports);
  }

 private:
  void run_rank_thread(std::size_t rank, Clock::time_point epoch) {
    try {
      const auto device = job_.devices(static_cast<int>(rank));
      RankRunner runner(job_.program, static_cast<int>(rank), *device, *communicators_[rank],
                        job_.options.fault, epoch);
      const Registration registered(*this, rank, runner);
      try {
        outcomes_[rank] = run_body(job_, runner, *device, *communicators_[rank]);
      } catch (const std::exception& cause) {
        fail(as_executor_error(static_cast<int>(rank), cause));
      }
    } catch (const std::exception& cause) {
      fail(as_executor_error(static_cast<int>(rank), cause));
    }
  }

  /// Makes a runner known for as long as it lives.
  struct Registration {
    Registration(LocalRanks& owner, std::size_t rank, RankRunner& runner)
        : owner_(owner), rank_(rank) {
      const std::lock_guard lock(owner_.mutex_);
      owner_.runners_[rank_] = &runner;
      if (owner_.failure_) runner.stop(owner_.failure_->message);
    }
    ~Registration() {
      const std::lock_guard lock(owner_.mutex_);
      owner_.runners_[rank_] = nullptr;
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;
    LocalRanks& owner_;
    std::size_t rank_;
  };

  void fail(const ExecutorError& failure) {
    for (const auto& communicator : communicators_) communicator->abort(describe(failure));
    std::unique_lock lock(mutex_);
    if (failure.kind == FailureKind::kAborted) {
      // A rank that only obeyed explains nothing. The one that it obeyed reports by itself, and
      // until then this rank stays as it is, to be looked at.
      explained_.wait(lock, [&] { return failure_.has_value(); });
      return;
    }
    if (!failure_) failure_ = explain(failure);
    explained_.notify_all();
    for (RankRunner* runner : runners_) {
      if (runner != nullptr) runner->stop(failure_->message);
    }
  }

  /// Follows "waits for" from rank to rank until one does not wait for another.
  Error explain(const ExecutorError& failure) const {
    int culprit = failure.awaited;
    std::vector<bool> seen(communicators_.size(), false);
    while (failure.kind == FailureKind::kStalled && culprit >= 0) {
      const auto at = static_cast<std::size_t>(culprit);
      if (seen[at]) break;
      seen[at] = true;
      const RankRunner* runner = runners_[at];
      const bool computes =
          runner == nullptr || runner->status().host.activity.load() == Activity::kRunning;
      const int next = communicators_[at]->awaiting();
      if (computes || next < 0) break;
      culprit = next;
    }
    const bool known = failure.kind == FailureKind::kStalled && culprit >= 0;
    if (!known) return to_error(failure, failure.rank, "");
    const RankRunner* runner = runners_[static_cast<std::size_t>(culprit)];
    const std::string state =
        runner == nullptr ? "is not running"
                          : "is at " + describe_status(job_.program, culprit, runner->status());
    return to_error(failure, culprit, "; rank " + std::to_string(culprit) + " " + state);
  }

  const Job& job_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::mutex mutex_;
  std::vector<RankRunner*> runners_;  // nullptr: not running
  std::vector<Outcome> outcomes_;
  std::optional<Error> failure_;
  std::condition_variable explained_;
};

}  // namespace

Result<RunResult> run_local(const Program& program, const DeviceFactory& devices,
                            const DataSource& train, const DataSource* eval,
                            const RunOptions& options) {
  const Job job{program, devices, train, eval, options};
  BAYPLAN_RETURN_IF_ERROR(check_options(job));
  BAYPLAN_RETURN_IF_ERROR(RunOutput::prepare(options.output_directory, options.dump_state));
  LocalRanks ranks(job, make_local_communicators(program.world_size(),
                                                 {.deadline_seconds = options.deadline_seconds}));
  return ranks.run();
}

}  // namespace bayplan::exec
