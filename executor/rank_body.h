// What one rank does in a run, from loading to saving, and how the ranks' outcomes become one
// result. Shared by run_local() and run_rank(); not for anyone else.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "executor/comm/communicator.h"
#include "executor/data/data_source.h"
#include "executor/device.h"
#include "executor/error.h"
#include "executor/rank_report.h"
#include "executor/rank_runner.h"
#include "executor/run.h"
#include "planner/core/result.h"

namespace bayplan::exec {

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

/// Refuses options that make no sense, or do not match the program.
Status check_options(const Job& job);

/// Loads, trains, evaluates and saves. Throws ExecutorError and file errors. Needs no output
/// directory on ranks other than 0.
Outcome run_body(const Job& job, RankRunner& runner, Device& device, Communicator& communicator);

/// Rank 0's outcome and all reports as the result of the run.
RunResult combine(const Job& job, Outcome root, const std::vector<RankReport>& reports);

/// An exception that left a rank, as an ExecutorError of that rank.
ExecutorError as_executor_error(int rank, const std::exception& cause);

/// The error that a run ends with. `culprit`: the rank to look at; `explanation` is appended.
Error to_error(const ExecutorError& failure, int culprit, const std::string& explanation);

}  // namespace bayplan::exec
