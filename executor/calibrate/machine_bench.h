// Measurements of the machine itself: memory rates, optimizer and summing kernels, and what it
// takes to wake a thread. Not for: operators (operator_bench_torch.h), anything with a Program.
#pragma once

#include <string>

#include "planner/core/units.h"
#include "planner/cost/calibration.h"

namespace bayplan::exec {

/// Model name of the first processor, "unknown processor" when the system does not say.
std::string processor_name();

/// Bytes per second of one worker that copies (or clears) buffers that no cache holds.
struct StreamTime {
  double busy = 0.0;  // while all workers do
  double alone = 0.0;
};
StreamTime measure_copy(int workers, double seconds);
StreamTime measure_fill(int workers, double seconds);

/// fp32, bf16 (fp32 state) or fp64; one thread per worker.
StreamRates measure_streams(DType compute, int workers, double seconds);

/// Notify on one thread until another runs; with `busy` threads computing meanwhile (mean).
Seconds measure_wake(int busy, double seconds);

/// Lock, bookkeeping and notification that the executor does per instruction.
Seconds measure_instruction(double seconds);

}  // namespace bayplan::exec
