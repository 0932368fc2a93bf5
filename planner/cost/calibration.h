// Calibration: what was measured of one CPU machine. Rates of operators over grids of shapes,
// of memory, and the latency of waking a thread; no plan and no program is involved.
// Measured by executor/calibrate_torch.h, stored by planner/formats/calibration_json.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/core/dtype.h"
#include "planner/core/operator.h"
#include "planner/core/units.h"

namespace bayplan {

/// The sizes that an operator's rate depends on; entries that a kind does not use are 1.
///   linear {rows, in, out} · lm_head {rows, in, vocab} · attention {samples·heads, seq, head_dim}
///   rope {rows, width, seq}, since its table has a row per position · all others {rows, width, 1}
using OperatorSize = std::array<std::int64_t, 3>;

/// Rate of one phase of one operator kind, one thread per worker and every core busy. Rates count
/// FLOP for linear, lm_head and attention and bytes for the others, both as the operator table
/// counts them.
struct RateGrid {
  OperatorKind kind{};
  Phase phase{};
  DType dtype{};
  std::array<std::vector<std::int64_t>, 3> axes;  // ascending, never empty
  std::vector<double> rates;                      // per second; row-major over axes
  friend bool operator==(const RateGrid&, const RateGrid&) = default;
};

/// Time with one thread over (threads · time with `threads`), for a short and for a long call.
struct ThreadEfficiency {
  int threads = 2;
  double short_call = 1.0;
  double long_call = 1.0;
  Seconds short_time;  // what the calls take with one thread
  Seconds long_time;
  friend bool operator==(const ThreadEfficiency&, const ThreadEfficiency&) = default;
};

/// Streaming kernels, one thread per worker and every core busy.
struct StreamRates {
  DType dtype{};                // compute dtype of the job
  double update_elements = 0;   // optimizer_step, elements per second
  double norm_elements = 0;     // gradient_norm
  double sum_bytes = 0;         // two contributions summed: bytes read and written per second
  friend bool operator==(const StreamRates&, const StreamRates&) = default;
};

struct Calibration {
  static constexpr int kVersion = 1;
  std::string machine;    // CPU model
  std::string libraries;  // what computed
  int cores = 0;

  std::vector<RateGrid> operators;
  std::vector<StreamRates> streams;
  std::vector<ThreadEfficiency> threads;
  double copy_bytes = 0;  // copied bytes per second (each read and written once)
  double fill_bytes = 0;  // zeroed bytes per second

  /// [k - 1]: time with k busy cores over time with one. Compute: large matrix products; memory:
  /// copies between buffers that no cache holds; mixed: element-wise operators.
  std::vector<double> slowdown_compute, slowdown_mixed, slowdown_memory;
  /// Work done by 2 · cores threads in the time of what `cores` threads do, inverted: >= 1.
  double oversubscription = 1.0;

  Seconds wake_idle;       // notify on one thread until another runs, cores idle
  Seconds wake_busy;       // the same while every core computes
  Seconds instruction;     // issue, waits and bookkeeping of one instruction
  /// Messages between processes: latency and rate; 0 = not measured.
  Seconds mpi_latency;
  BytesPerSecond mpi_bandwidth;
  friend bool operator==(const Calibration&, const Calibration&) = default;
};

}  // namespace bayplan
