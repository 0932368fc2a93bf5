#include "executor/calibrate_torch.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <sched.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "executor/calibrate/machine_bench.h"
#include "executor/calibrate/operator_bench_torch.h"
#include "executor/calibrate/worker_gang.h"
#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

using Axis3 = std::array<std::vector<std::int64_t>, 3>;

/// Sizes at which a kind is measured. Factors of four: between neighbours a rate changes slowly
/// and is interpolated.
Axis3 axes_of(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::kLinear:
      return {{{16, 64, 256, 1024, 4096}, {16, 64, 256, 1024, 4096}, {16, 64, 256, 1024, 4096}}};
    case OperatorKind::kLmHeadLoss:
      return {{{16, 64, 256, 1024}, {16, 64, 256, 1024}, {32, 128, 512, 4096, 32768}}};
    case OperatorKind::kAttention:
      return {{{1, 4, 16}, {16, 64, 256, 1024}, {16, 32, 64, 128}}};
    case OperatorKind::kRope:
      return {{{16, 64, 256, 1024, 4096}, {192, 768, 3072}, {16, 128, 1024}}};
    case OperatorKind::kEmbedding:
    case OperatorKind::kLayerNorm:
    case OperatorKind::kRmsNorm:
    case OperatorKind::kGelu:
    case OperatorKind::kSwiglu:
    case OperatorKind::kResidualAdd:
    case OperatorKind::kDropout:
      break;
  }
  return {{{16, 64, 256, 1024, 4096}, {16, 64, 256, 1024, 4096}, {1}}};
}

constexpr double kLeastPointSeconds = 0.001;
// A call longer than this is left out; its rate is that of the next smaller size.
constexpr double kLongestCall = 0.008;
// Passes over all grids, some seconds apart: what disturbs one pass rarely disturbs the other.
constexpr int kPasses = 2;
constexpr std::array<DType, 2> kDTypes = {DType::kFp32, DType::kBf16};

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

std::int64_t point_count(const Axis3& axes) {
  std::int64_t n = 1;
  for (const auto& axis : axes) n *= static_cast<std::int64_t>(axis.size());
  return n;
}

class Calibrator {
 public:
  Calibrator(const CalibrateOptions& options,
             const std::function<void(double, const std::string&)>& progress)
      : options_(options),
        progress_(progress),
        cores_(options.cores > 0 ? options.cores : usable_cores()) {
    std::int64_t phases = 0;
    for (int k = 0; k < kOperatorKindCount; ++k)
      phases += 3 * point_count(axes_of(static_cast<OperatorKind>(k)));
    // The rest is for calls longer than their share, filling tensors, warming up and threads.
    const double points = static_cast<double>(phases) * kDTypes.size() * kPasses;
    point_seconds_ = std::max(kLeastPointSeconds, 0.25 * options.budget_seconds / points);
    stream_seconds_ = std::max(0.02, 0.003 * options.budget_seconds);
  }

  Calibration run() {
    Calibration c;
    c.machine = processor_name();
    c.libraries = std::string("torch ") + TORCH_VERSION + ", " + at::get_cpu_capability();
    c.cores = cores_;
    report("memory and threads");
    measure_machine(c);
    measure_crowding(c);
    measure_threads(c);
    std::vector<KindGrids> all;
    for (const DType dtype : kDTypes) {
      for (int k = 0; k < kOperatorKindCount; ++k)
        all.push_back(empty_grids(static_cast<OperatorKind>(k), dtype));
    }
    for (int pass = 0; pass < kPasses; ++pass) {
      for (KindGrids& grids : all) measure_kind(grids);
    }
    for (KindGrids& grids : all) {
      for (RateGrid& grid : grids) keep(c, std::move(grid));
    }
    report("done", 1.0);
    return c;
  }

 private:
  void report(const std::string& what, double fraction) const {
    if (progress_) progress_(fraction, what);
  }
  void report(const std::string& what) const { report(what, done_); }

  void measure_machine(Calibration& c) {
    const StreamTime copy = measure_copy(cores_, stream_seconds_);
    c.copy_bytes = copy.busy;
    c.memory_slowdown = std::max(1.0, copy.alone / copy.busy);
    c.fill_bytes = measure_fill(cores_, stream_seconds_).busy;
    for (const DType dtype : {DType::kFp32, DType::kBf16, DType::kFp64}) {
      c.streams.push_back(measure_streams(dtype, cores_, stream_seconds_));
    }
    c.wake_idle = measure_wake(0, stream_seconds_ * 2);
    c.wake_busy = measure_wake(cores_, stream_seconds_ * 4);
    c.instruction = measure_instruction(stream_seconds_);
    done_ = 0.08;
  }

  /// Powers of two up to all cores, and all cores.
  std::vector<int> worker_counts() const {
    std::vector<int> counts;
    for (int k = 1; k < cores_; k *= 2) counts.push_back(k);
    counts.push_back(cores_);
    return counts;
  }

  /// Time with one thread per worker.
  GangTime product_time(Phase phase, int workers) {
    const OperatorPoint product = point_of(OperatorKind::kLinear, {512, 512, 512});
    const BenchOptions options{workers, 1, stream_seconds_, 1.0};
    return *bench_.time(product, precision_of(DType::kFp32),
                        options)[static_cast<std::size_t>(phase)];
  }

  /// How the slowdown grows with the number of busy cores; linear between the counts measured.
  void measure_crowding(Calibration& c) {
    std::vector<int> counts;
    std::vector<double> slowdowns;
    for (const int k : worker_counts()) {
      const GangTime time = product_time(Phase::kBackwardInput, k);
      counts.push_back(k);
      slowdowns.push_back(k == 1 ? 0.0 : time.busy / time.alone - 1.0);
    }
    // Cores that hardly share anything: any shape will do.
    const bool shared = slowdowns.back() > 0.05;
    c.crowding.assign(static_cast<std::size_t>(cores_), 0.0);
    for (int k = 2; k <= cores_; ++k) {
      const auto upper = static_cast<std::size_t>(
          std::lower_bound(counts.begin(), counts.end(), k) - counts.begin());
      const double from = counts[upper - 1];
      const double share = (k - from) / (counts[upper] - from);
      const double slowdown =
          slowdowns[upper - 1] + share * (slowdowns[upper] - slowdowns[upper - 1]);
      const double crowding = shared ? slowdown / slowdowns.back() : double(k - 1) / (cores_ - 1);
      c.crowding[static_cast<std::size_t>(k - 1)] = std::clamp(crowding, 0.0, 1.0);
    }
    const OperatorPoint product = point_of(OperatorKind::kLinear, {512, 512, 512});
    const auto calls = [&](int workers) {
      return bench_.calls_per_second(product, precision_of(DType::kFp32),
                                     {workers, 1, stream_seconds_ * 4, 0.0});
    };
    c.oversubscription = std::max(1.0, calls(cores_) / calls(2 * cores_));
    done_ = 0.15;
  }

  void measure_threads(Calibration& c) {
    // Short: a few tasks of some tens of microseconds; long: enough work for any number of tasks.
    const OperatorPoint short_call = point_of(OperatorKind::kLinear, {256, 128, 128});
    const OperatorPoint long_call = point_of(OperatorKind::kLinear, {1024, 512, 1024});
    const auto time = [&](const OperatorPoint& point, int threads) {
      return bench_.time(point, precision_of(DType::kFp32), {1, threads, stream_seconds_, 0.0})[0]
          ->alone;
    };
    const double short_time = time(short_call, 1);
    const double long_time = time(long_call, 1);
    for (const int threads : worker_counts()) {
      if (threads == 1) continue;
      ThreadEfficiency e;
      e.threads = threads;
      e.short_time = Seconds(short_time);
      e.long_time = Seconds(long_time);
      e.short_call = short_time / (threads * time(short_call, threads));
      e.long_call = long_time / (threads * time(long_call, threads));
      c.threads.push_back(e);
    }
    done_ = 0.2;
  }

  /// One grid per phase.
  using KindGrids = std::array<RateGrid, 3>;

  static KindGrids empty_grids(OperatorKind kind, DType dtype) {
    const Axis3 axes = axes_of(kind);
    KindGrids grids;
    for (std::size_t p = 0; p < grids.size(); ++p) {
      grids[p] = {kind, static_cast<Phase>(p), dtype, axes, {}, {}};
      grids[p].busy.assign(static_cast<std::size_t>(point_count(axes)), 0.0);
      grids[p].alone = grids[p].busy;
    }
    return grids;
  }

  void measure_kind(KindGrids& grids) {
    report(std::string(operator_spec(grids[0].kind).name) + " " +
           std::string(dtype_name(grids[0].dtype)));
    const auto& axes = grids[0].axes;
    for (std::size_t i = 0; i < axes[0].size(); ++i) {
      for (std::size_t j = 0; j < axes[1].size(); ++j) {
        for (std::size_t k = 0; k < axes[2].size(); ++k) measure_point(grids, {i, j, k});
      }
    }
    done_ += 0.8 / (kPasses * kOperatorKindCount * kDTypes.size());
  }

  static void keep(Calibration& c, RateGrid grid) {
    const bool measured =
        std::any_of(grid.busy.begin(), grid.busy.end(), [](double r) { return r > 0.0; });
    if (!measured) return;
    fill_gaps(grid);
    c.operators.push_back(std::move(grid));
  }

  static std::size_t index_of(const RateGrid& grid, const std::array<std::size_t, 3>& at) {
    return (at[0] * grid.axes[1].size() + at[1]) * grid.axes[2].size() + at[2];
  }

  void measure_point(KindGrids& grids, const std::array<std::size_t, 3>& at) {
    const RateGrid& any = grids[0];
    const OperatorSize size{any.axes[0][at[0]], any.axes[1][at[1]], any.axes[2][at[2]]};
    const OperatorPoint point = point_of(any.kind, size);
    const Precision precision = precision_of(any.dtype);
    if (!bench_.fits(point, precision) || expected_call(grids, at, point, precision) > kLongestCall)
      return;
    const PhaseTimes times =
        bench_.time(point, precision, {cores_, 1, point_seconds_, kLongestCall});
    for (std::size_t p = 0; p < grids.size(); ++p) {
      const double work = work_of(point, precision, static_cast<Phase>(p));
      if (!times[p] || work <= 0.0) continue;
      // The best pass counts, and noise must not make a crowded machine look faster than an idle
      // one.
      double& busy = grids[p].busy[index_of(grids[p], at)];
      double& alone = grids[p].alone[index_of(grids[p], at)];
      busy = std::max(busy, work / times[p]->busy);
      alone = std::max({alone, busy, work / times[p]->alone});
    }
  }

  /// Longest phase at the rate of the next smaller size on any axis; 0 when nothing is known.
  static double expected_call(const KindGrids& grids, const std::array<std::size_t, 3>& at,
                              const OperatorPoint& point, const Precision& precision) {
    double longest = 0.0;
    for (std::size_t d = 0; d < 3; ++d) {
      if (at[d] == 0) continue;
      std::array<std::size_t, 3> smaller = at;
      --smaller[d];
      for (std::size_t p = 0; p < grids.size(); ++p) {
        const double work = work_of(point, precision, static_cast<Phase>(p));
        const double rate = grids[p].busy[index_of(grids[p], smaller)];
        // A smaller call that was itself left out says that this one is, too.
        if (p == 0 && rate == 0.0) return 2 * kLongestCall;
        if (rate > 0.0) longest = std::max(longest, work / rate);
      }
    }
    return longest;
  }

  static double work_of(const OperatorPoint& point, const Precision& precision, Phase phase) {
    const OperatorSpec& spec = operator_spec(point.op.kind);
    std::vector<TensorShape> outputs, statistics;
    spec.infer(point.op, point.inputs, point.batch, outputs, statistics);
    const OperatorWork work =
        spec.work(point.op, {point.inputs, outputs, statistics}, phase, precision);
    const bool flops = point.op.kind == OperatorKind::kLinear ||
                       point.op.kind == OperatorKind::kLmHeadLoss ||
                       point.op.kind == OperatorKind::kAttention;
    return flops ? work.flops.value : static_cast<double>(work.bytes.value);
  }

  /// Sizes that were left out get the rate of the nearest smaller size that was measured.
  static void fill_gaps(RateGrid& grid) {
    std::array<std::size_t, 3> at{};
    for (at[0] = 0; at[0] < grid.axes[0].size(); ++at[0]) {
      for (at[1] = 0; at[1] < grid.axes[1].size(); ++at[1]) {
        for (at[2] = 0; at[2] < grid.axes[2].size(); ++at[2]) {
          const std::size_t here = index_of(grid, at);
          for (std::size_t d = 0; d < 3 && grid.busy[here] == 0.0; ++d) {
            if (at[d] == 0) continue;
            std::array<std::size_t, 3> smaller = at;
            --smaller[d];
            grid.busy[here] = grid.busy[index_of(grid, smaller)];
            grid.alone[here] = grid.alone[index_of(grid, smaller)];
          }
          BAYPLAN_CHECK(grid.busy[here] > 0.0, "the smallest size of a grid was not measured");
        }
      }
    }
  }

  CalibrateOptions options_;
  const std::function<void(double, const std::string&)>& progress_;
  int cores_;
  OperatorBench bench_;
  double point_seconds_ = 0.0;
  double stream_seconds_ = 0.0;
  double done_ = 0.0;
};

}  // namespace

Result<Calibration> calibrate_machine(
    const CalibrateOptions& options,
    const std::function<void(double, const std::string&)>& progress) {
  if (!(options.budget_seconds > 0.0 && options.budget_seconds < 86400.0)) {
    return Error{"bad-budget", "the time budget must be positive and below a day", "--budget",
                 "try 40s"};
  }
  return Calibrator(options, progress).run();
}

}  // namespace bayplan::exec
