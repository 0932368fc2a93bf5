#include "executor/rank_body.h"

#include <array>
#include <chrono>
#include <cmath>

#include "executor/checkpoint/save_state.h"
#include "executor/trace/run_output.h"

namespace bayplan::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// fp32 unless the run is in fp64: a reported norm has the precision of the gradients.
double rounded(double value, const Precision& precision) {
  return precision.reduction == DType::kFp64 ? value
                                             : static_cast<double>(static_cast<float>(value));
}

class RankBody {
 public:
  RankBody(const Job& job, RankRunner& runner, Communicator& communicator)
      : job_(job),
        runner_(runner),
        communicator_(communicator),
        output_(communicator.rank() == 0 ? job.options.output_directory : std::string()),
        sent_before_(communicator.wire()) {}

  Outcome run(Device& device) {
    execute({.kind = ProgramKind::kLoad});
    const RunOptions& options = job_.options;
    for (std::int64_t step = 0; step < options.steps; ++step) {
      train_step(step);
      const bool last = step + 1 == options.steps;
      const bool due = options.eval_every > 0 && (step + 1) % options.eval_every == 0;
      if (job_.eval != nullptr && options.eval_samples > 0 && (last || due)) evaluate(step);
    }
    const std::vector<WireCount> sent = sent_since_start();
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

  std::vector<WireCount> sent_since_start() const {
    std::vector<WireCount> sent = communicator_.wire();
    for (WireCount& count : sent) {
      for (const WireCount& before : sent_before_) {
        if (before.collective == count.collective && before.purpose == count.purpose) {
          count.bytes -= before.bytes;
        }
      }
    }
    return sent;
  }

  void barrier(std::int64_t step) {
    communicator_.barrier({step, "barrier between steps", Purpose::kNone});
  }

  void train_step(std::int64_t step) {
    const RunOptions& options = job_.options;
    ProgramCall call{.kind = ProgramKind::kTrainStep, .step = step};
    call.learning_rate = learning_rate_at(job_.program.job, step);
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
    metrics.learning_rate = call.learning_rate;
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
    request.model_path = RunOutput::model_path(job_.options.output_directory);
    if (!runner_.has_memory() || !request.wanted()) return;
    outcome_.state_hash = save_state(job_.program, runner_.arenas(), communicator_, request);
    outcome_.checkpoint = request.model_path;
  }

  const Job& job_;
  RankRunner& runner_;
  Communicator& communicator_;
  RunOutput output_;
  std::vector<WireCount> sent_before_;
  std::array<std::int64_t, kProgramKindCount> executions_{};
  Outcome outcome_;
};

}  // namespace

Status check_options(const Job& job) {
  const RunOptions& options = job.options;
  const std::int64_t batch = job.program.job.global_batch;
  if (options.steps < 0 || options.first_sample < 0 || options.timeline_steps < 0) {
    return Error{"bad-option", "steps and samples must not be negative", "run options",
                 "use 0 or more"};
  }
  if (!(options.deadline_seconds > 0.0)) {
    return Error{"bad-option", "the deadline must be positive", "run options",
                 "use a deadline above 0 s"};
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
                   "data has samples of " + std::to_string(data->seq()) +
                       " tokens, the program of " + std::to_string(job.program.job.seq),
                   "run options", "open the data with the plan's sequence length"};
    }
  }
  return {};
}

Outcome run_body(const Job& job, RankRunner& runner, Device& device, Communicator& communicator) {
  return RankBody(job, runner, communicator).run(device);
}

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

}  // namespace bayplan::exec
