// run(): trains with a Program. The same function serves threads in one process, MPI processes
// and dry runs; only the Device and Communicator differ.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/comm/communicator.h"
#include "executor/device.h"
#include "planner/core/result.h"
#include "planner/program/program.h"
#include "planner/program/timeline.h"

namespace bayplan::exec {

/// Where samples come from; layout-independent: sample i is the same on every rank.
class DataSource;  // executor/data/data_source.h

/// Test hook: what happens when `rank` reaches instruction `index` of train step `step`.
struct FaultInjection {
  enum class Kind : std::uint8_t { kNone, kThrow, kStall } kind = Kind::kNone;
  int rank = 0;
  std::int64_t step = 0;
  std::int32_t instruction = 0;
};

struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0.0;       // mean over tokens
  double grad_norm = 0.0;  // of the mean gradient, before clipping
  double learning_rate = 0.0;
  double seconds = 0.0;
  double tokens_per_second = 0.0;
};

struct RunOptions {
  std::int64_t steps = 1;
  std::int64_t eval_every = 0;  // steps between evaluations; 0 = only at the end, if eval_samples
  std::int64_t eval_samples =
      0;  // held-out samples per evaluation, multiple of the global batch; 0 = none
  std::int64_t first_sample = 0;   // data cursor
  double deadline_seconds = 60.0;  // for one communication call
  FaultInjection fault{};
  std::string output_directory{};  // "" = write nothing
  std::string dump_state{};        // "" = none; safetensors file
  bool hash_state = true;
  bool record_timeline = true;
  std::int64_t timeline_steps = 3;                    // the last N steps are kept
  std::function<void(const StepMetrics&)> on_step{};  // rank 0's thread
};

struct MemoryReport {
  int rank = 0;
  Tier tier = Tier::kDevice;
  std::int64_t predicted_bytes = 0;
  std::int64_t measured_bytes = 0;  // high water of marks
  std::int64_t workspace_declared_bytes = 0;
  std::int64_t workspace_used_bytes = 0;
};

struct WireReport {
  int rank = 0;
  InstructionKind collective{};
  Purpose purpose{};
  std::int64_t predicted_bytes = 0;
  std::int64_t sent_bytes = 0;
};

struct RunResult {
  std::uint64_t fingerprint = 0;
  std::vector<double> losses;
  std::vector<double> eval_losses;
  std::vector<double> grad_norms;
  std::vector<double> step_seconds;
  std::vector<MemoryReport> memory;
  std::vector<WireReport> wire;
  std::int64_t rss_bytes = 0;
  std::string state_hash;  // hex xxh3-128
  Timeline timeline;
  std::string checkpoint;  // path or ""
};

/// What a rank runs on.
using DeviceFactory = std::function<std::unique_ptr<Device>(int rank)>;

/// All ranks as threads of this process.
Result<RunResult> run_local(const Program& program, const DeviceFactory& devices,
                            const DataSource& train, const DataSource* eval,
                            const RunOptions& options);

/// This process is one rank of `communicator`; the result is whole on rank 0 only.
Result<RunResult> run_rank(const Program& program, const DeviceFactory& devices,
                           Communicator& communicator, const DataSource& train,
                           const DataSource* eval, const RunOptions& options);

}  // namespace bayplan::exec
