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

/// Rate of one phase of one operator kind on one thread, while every core does the same and while
/// the others are idle. (Cores share memory, caches and, as hardware threads, arithmetic units.)
/// Rates count FLOP for linear, lm_head and attention and bytes for the others, both as the
/// operator table counts them.
struct RateGrid {
  OperatorKind kind{};
  Phase phase{};
  DType dtype{};
  std::array<std::vector<std::int64_t>, 3> axes;  // ascending, never empty
  std::vector<double> busy;                       // per second; row-major over axes
  std::vector<double> alone;
  friend bool operator==(const RateGrid&, const RateGrid&) = default;
};

/// Time of an operator's phases with one thread over (threads · time with `threads`), nothing else
/// running, for a short and for a long call.
struct ThreadEfficiency {
  OperatorKind kind{};
  int threads = 2;
  double short_call = 1.0;
  double long_call = 1.0;
  Seconds short_time;  // what a phase takes with one thread, on average
  Seconds long_time;
  friend bool operator==(const ThreadEfficiency&, const ThreadEfficiency&) = default;
};

/// Streaming kernels, one thread per worker and every core busy.
struct StreamRates {
  DType dtype{};               // compute dtype of the job
  double update_elements = 0;  // AdamW, elements per second
  double norm_elements = 0;    // gradient_norm
  double sum_bytes = 0;        // two contributions summed: bytes read and written per second
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
  double copy_bytes = 0;  // copied bytes per second (each read and written once), every core busy
  double fill_bytes = 0;  // zeroed bytes per second, every core busy
  /// Time of a copy with every core copying over the time of one alone: >= 1.
  double memory_slowdown = 1.0;

  /// [k - 1]: share of the slowdown of all cores that k busy cores suffer; 0 for one, 1 for all.
  std::vector<double> crowding;
  /// Work done by 2 · cores threads in the time of what `cores` threads do, inverted: >= 1.
  double oversubscription = 1.0;

  Seconds wake_idle;    // notify on one thread until another runs, cores idle
  Seconds wake_busy;    // the same while every core computes
  Seconds instruction;  // issue, waits and bookkeeping of one instruction
  /// Messages between processes: latency and rate; 0 = not measured.
  Seconds mpi_latency;
  BytesPerSecond mpi_bandwidth;
  friend bool operator==(const Calibration&, const Calibration&) = default;
};

}  // namespace bayplan
