#include "executor/run.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "executor/checkpoint/save_state.h"
#include "executor/comm/local.h"
#include "executor/data/data_source.h"
#include "executor/error.h"
#include "executor/rank_report.h"
#include "executor/rank_runner.h"
#include "executor/run_output.h"
#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// The arguments of a run, as every rank sees them.
struct Job {
  const Program& program;
  const DeviceFactory& devices;
  const DataSource& train;
  const DataSource* eval;
  const RunOptions& options;

  std::int64_t tokens() const { return program.job.global_batch * program.job.seq; }
};

/// What one rank has when it is done; the curves are the same on all ranks, rank 0's count.
struct Outcome {
  RankReport report;
  std::vector<double> losses, eval_losses, grad_norms, step_seconds;
  std::string state_hash;
  std::string checkpoint;
};

/// fp32 unless the run is in fp64: a reported norm has the precision of the gradients.
double rounded(double value, const Precision& precision) {
  return precision.reduction == DType::kFp64 ? value
                                             : static_cast<double>(static_cast<float>(value));
}

class RankBody {
 public:
  RankBody(const Job& job, RankRunner& runner, Communicator& communicator)
      : job_(job), runner_(runner), communicator_(communicator),
        output_(communicator.rank() == 0 ? job.options.output_directory : std::string()) {}

  Outcome run(Device& device) {
    execute({.kind = ProgramKind::kLoad});
    const RunOptions& options = job_.options;
    for (std::int64_t step = 0; step < options.steps; ++step) {
      train_step(step);
      const bool last = step + 1 == options.steps;
      const bool due = options.eval_every > 0 && (step + 1) % options.eval_every == 0;
      if (job_.eval != nullptr && options.eval_samples > 0 && (last || due)) evaluate(step);
    }
    const std::vector<WireCount> sent = communicator_.wire();
    execute({.kind = ProgramKind::kSave, .step = options.steps});
    save();
    outcome_.report.rank = communicator_.rank();
    outcome_.report.memory = memory_reports(job_.program, communicator_.rank(), runner_.memory(),
                                            device.workspace_used());
    outcome_.report.wire = wire_reports(job_.program, communicator_.rank(), executions_, sent);
    return std::move(outcome_);
  }

 private:
  ProgramTrace execute(const ProgramCall& call) {
    ++executions_[static_cast<std::size_t>(call.kind)];
    return runner_.run(call);
  }

  void barrier(std::int64_t step) {
    communicator_.barrier({step, "barrier between steps", Purpose::kNone});
  }

  void train_step(std::int64_t step) {
    const RunOptions& options = job_.options;
    ProgramCall call{.kind = ProgramKind::kTrainStep, .step = step};
    call.learning_rate = job_.program.job.learning_rate;
    call.data = runner_.has_memory() ? &job_.train : nullptr;
    call.first_sample = options.first_sample + step * job_.program.job.global_batch;
    call.record = options.record_timeline && step >= options.steps - options.timeline_steps;
    // Steps start together and are timed from barrier to barrier, so that none hides in another.
    barrier(step);
    const Clock::time_point start = Clock::now();
    ProgramTrace trace = execute(call);
    barrier(step);
    StepMetrics metrics;
    metrics.step = step;
    metrics.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    metrics.tokens_per_second = static_cast<double>(job_.tokens()) / metrics.seconds;
    if (call.record) {
      RankReport& report = outcome_.report;
      report.events.insert(report.events.end(), trace.events.begin(), trace.events.end());
      report.samples.insert(report.samples.end(), trace.memory.begin(), trace.memory.end());
    }
    const std::vector<double> scalars = runner_.scalars();
    if (!scalars.empty()) {
      const auto tokens = static_cast<double>(job_.tokens());
      double squares = 0.0;
      for (std::size_t g = 1; g < scalars.size(); ++g) squares += scalars[g];
      metrics.loss = scalars[0] / tokens;
      metrics.grad_norm = rounded(std::sqrt(squares) / tokens, job_.program.job.precision);
    }
    outcome_.losses.push_back(metrics.loss);
    outcome_.grad_norms.push_back(metrics.grad_norm);
    outcome_.step_seconds.push_back(metrics.seconds);
    output_.add(metrics);
    if (communicator_.rank() == 0 && options.on_step) options.on_step(metrics);
  }

  void evaluate(std::int64_t step) {
    const std::int64_t batch = job_.program.job.global_batch;
    double sum = 0.0;
    for (std::int64_t first = 0; first < job_.options.eval_samples; first += batch) {
      ProgramCall call{.kind = ProgramKind::kEvalStep, .step = step};
      call.data = runner_.has_memory() ? job_.eval : nullptr;
      call.first_sample = first;
      execute(call);
      const std::vector<double> scalars = runner_.scalars();
      if (!scalars.empty()) sum += scalars[0];
    }
    outcome_.eval_losses.push_back(
        sum / static_cast<double>(job_.options.eval_samples * job_.program.job.seq));
  }

  void save() {
    SaveRequest request;
    request.hash = job_.options.hash_state;
    request.dump_path = job_.options.dump_state;
    request.step = job_.options.steps;
    if (!job_.options.output_directory.empty()) {
      request.model_path = (job_.options.output_directory.back() == '/')
                               ? job_.options.output_directory + "model.safetensors"
                               : job_.options.output_directory + "/model.safetensors";
    }
    if (!runner_.has_memory() || !request.wanted()) return;
    outcome_.state_hash = save_state(job_.program, runner_.arenas(), communicator_, request);
    outcome_.checkpoint = request.model_path;
  }

  const Job& job_;
  RankRunner& runner_;
  Communicator& communicator_;
  RunOutput output_;
  std::array<std::int64_t, kProgramKindCount> executions_{};
  Outcome outcome_;
};

RunResult combine(const Job& job, Outcome root, const std::vector<RankReport>& reports) {
  RunResult result;
  result.fingerprint = job.program.fingerprint;
  result.losses = std::move(root.losses);
  result.eval_losses = std::move(root.eval_losses);
  result.grad_norms = std::move(root.grad_norms);
  result.step_seconds = std::move(root.step_seconds);
  for (const RankReport& report : reports) {
    result.memory.insert(result.memory.end(), report.memory.begin(), report.memory.end());
    result.wire.insert(result.wire.end(), report.wire.begin(), report.wire.end());
  }
  result.rss_bytes = peak_resident_bytes();
  result.state_hash = std::move(root.state_hash);
  result.checkpoint = std::move(root.checkpoint);
  if (job.options.record_timeline) result.timeline = merge_timelines(job.program, reports);
  return result;
}

Status check_options(const Job& job) {
  const RunOptions& options = job.options;
  const std::int64_t batch = job.program.job.global_batch;
  if (options.steps < 0 || options.first_sample < 0 || options.timeline_steps < 0) {
    return Error{"bad-option", "steps and samples must not be negative", "run options", ""};
  }
  if (!(options.deadline_seconds > 0.0)) {
    return Error{"bad-option", "the deadline must be positive", "run options", ""};
  }
  if (options.eval_samples < 0 || options.eval_every < 0 || options.eval_samples % batch != 0) {
    return Error{"bad-option",
                 "evaluation takes " + std::to_string(options.eval_samples) +
                     " samples, not a multiple of the global batch of " + std::to_string(batch),
                 "run options", "use a multiple of the global batch"};
  }
  for (const DataSource* data : {&job.train, job.eval}) {
    if (data != nullptr && data->seq() != job.program.job.seq) {
      return Error{"bad-data",
                   "data has samples of " + std::to_string(data->seq()) + " tokens, the program of " +
                       std::to_string(job.program.job.seq),
                   "run options", "open the data with the plan's sequence length"};
    }
  }
  return {};
}

/// An exception that left a rank, as an ExecutorError of that rank.
ExecutorError as_executor_error(int rank, const std::exception& cause) {
  if (const auto* known = dynamic_cast<const ExecutorError*>(&cause)) return *known;
  return {rank, 0, "", cause.what()};
}

Error to_error(const ExecutorError& failure, int culprit, const std::string& explanation) {
  Error error;
  error.code = failure_code(failure.kind);
  error.message = describe(failure) + explanation;
  error.where = "rank " + std::to_string(culprit) + ", step " + std::to_string(failure.step);
  switch (failure.kind) {
    case FailureKind::kFailed:
      error.hint = "the other ranks were stopped; start again from the last checkpoint";
      break;
    case FailureKind::kStalled:
      error.hint = "look at that rank: it hangs, was stopped or is far slower than the others";
      break;
    case FailureKind::kMismatch:
      error.hint = "all ranks must run the same plan with the same build";
      break;
    case FailureKind::kAborted:
      error.hint = "another rank failed first";
      break;
  }
  return error;
}

/// The ranks of one process: stops all when one fails, and finds out which one to blame.
class LocalRanks {
 public:
  LocalRanks(const Job& job, std::vector<std::unique_ptr<Communicator>> communicators)
      : job_(job), communicators_(std::move(communicators)),
        runners_(communicators_.size(), nullptr), outcomes_(communicators_.size()) {}

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
      RankBody body(job_, runner, *communicators_[rank]);
      try {
        outcomes_[rank] = body.run(*device);
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
    if (failure.kind != FailureKind::kStalled || culprit < 0) return to_error(failure, failure.rank, "");
    const RankRunner* runner = runners_[static_cast<std::size_t>(culprit)];
    const std::string state = runner == nullptr
                                  ? "is not running"
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
  BAYPLAN_RETURN_IF_ERROR(RunOutput::prepare(options.output_directory));
  LocalRanks ranks(job, make_local_communicators(program.world_size(),
                                                 {.deadline_seconds = options.deadline_seconds}));
  return ranks.run();
}

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
    communicator.barrier({0, "barrier before the run", Purpose::kNone});
    RankRunner runner(program, rank, *device, communicator, options.fault, Clock::now());
    RankBody body(job, runner, communicator);
    Outcome outcome = body.run(*device);
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
