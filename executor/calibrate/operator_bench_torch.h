// Times one operator of the table, all phases, on tensors of its own: the kernels that a run
// calls, called on shapes that no plan chose. Not for: units, programs, memory planning.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "executor/calibrate/worker_gang.h"
#include "planner/core/operator.h"

namespace bayplan::exec {

struct OperatorPoint {
  Operator op;  // input, output and parameter indices are ignored
  std::vector<TensorShape> inputs;
  BatchShape batch;
};

struct BenchOptions {
  int workers = 1;            // threads that do this at once
  int threads = 1;            // threads of each call
  double seconds = 0.01;      // per phase
  double longest_call = 0.1;  // leave out phases that take longer than this
};

/// Time of each phase; nullopt: the operator has no such phase, or an earlier one takes too long.
using PhaseTimes = std::array<std::optional<GangTime>, 3>;

/// Seconds of a phase, on average over the phases, with one thread and with several.
struct ThreadTimes {
  double one = 0.0;
  double several = 0.0;
};

/// Keeps each worker's memory from one point to the next.
class OperatorBench {
 public:
  OperatorBench();
  ~OperatorBench();

  /// False when a worker's memory does not hold the operator's tensors.
  bool fits(const OperatorPoint& point, const Precision& precision) const;
  PhaseTimes time(const OperatorPoint& point, const Precision& precision,
                  const BenchOptions& options);
  /// Forward calls per second of all workers together.
  double calls_per_second(const OperatorPoint& point, const Precision& precision,
                          const BenchOptions& options);
  /// Alternates between one thread and `threads`, so that both see the same machine.
  ThreadTimes time_threads(const OperatorPoint& point, const Precision& precision, int threads,
                           double seconds);

 private:
  struct Worker;
  Worker& worker(int index);
  std::vector<std::unique_ptr<Worker>> workers_;
};

/// Operators at a size of planner/cost/calibration.h.
OperatorPoint point_of(OperatorKind kind, const std::array<std::int64_t, 3>& size);

}  // namespace bayplan::exec
