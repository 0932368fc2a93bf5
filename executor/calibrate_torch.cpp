#include "executor/calibrate_torch.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <sched.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <limits>
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
// Passes over all grids, some seconds apart, of which the median counts: what disturbs one pass
// rarely disturbs another, and a run meets the machine in its usual state, not in its best.
constexpr int kMostPasses = 5;
constexpr double kPassSeconds = 15.0;
constexpr double kThreadSeconds = 0.1;
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
    passes_ = static_cast<int>(
        std::clamp(options.budget_seconds / kPassSeconds, 1.0, double{kMostPasses}));
    std::int64_t phases = 0;
    for (int k = 0; k < kOperatorKindCount; ++k)
      phases += 3 * point_count(axes_of(static_cast<OperatorKind>(k)));
    // The rest is for calls longer than their share, filling tensors, warming up and threads.
    const double points = static_cast<double>(phases) * kDTypes.size() * passes_;
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
    std::vector<std::vector<KindGrids>> passes(static_cast<std::size_t>(passes_));
    for (std::vector<KindGrids>& pass : passes) {
      for (const DType dtype : kDTypes) {
        for (int k = 0; k < kOperatorKindCount; ++k) {
          pass.push_back(empty_grids(static_cast<OperatorKind>(k), dtype));
          measure_kind(pass.back());
        }
      }
    }
    for (std::size_t g = 0; g < passes[0].size(); ++g) {
      for (std::size_t phase = 0; phase < passes[0][g].size(); ++phase) {
        keep(c, combine(passes, g, phase));
      }
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

  /// Short: tens of microseconds; long: enough work for any number of tasks.
  static std::array<OperatorSize, 2> thread_sizes(OperatorKind kind) {
    if (kind == OperatorKind::kLinear) return {{{256, 128, 128}, {1024, 512, 1024}}};
    if (kind == OperatorKind::kLmHeadLoss) return {{{256, 128, 256}, {512, 256, 4096}}};
    if (kind == OperatorKind::kAttention) return {{{4, 64, 32}, {16, 256, 64}}};
    if (kind == OperatorKind::kRope) return {{{256, 192, 64}, {1024, 3072, 256}}};
    return {{{256, 128, 1}, {2048, 1024, 1}}};
  }

  void measure_threads(Calibration& c) {
    const Precision precision = precision_of(DType::kFp32);
    for (const int threads : worker_counts()) {
      if (threads == 1) continue;
      for (int k = 0; k < kOperatorKindCount; ++k) {
        const auto kind = static_cast<OperatorKind>(k);
        const auto sizes = thread_sizes(kind);
        const auto time = [&](const OperatorSize& size) {
          return bench_.time_threads(point_of(kind, size), precision, threads, kThreadSeconds);
        };
        const ThreadTimes short_call = time(sizes[0]), long_call = time(sizes[1]);
        const auto efficiency = [threads](const ThreadTimes& t) {
          return std::min(1.0, t.one / (threads * t.several));
        };
        c.threads.push_back({kind, threads, efficiency(short_call), efficiency(long_call),
                             Seconds(short_call.one), Seconds(long_call.one)});
      }
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
    done_ += 0.8 / (passes_ * kOperatorKindCount * kDTypes.size());
  }

  /// The median of the passes; noise must not make a crowded machine look faster than an idle one.
  static RateGrid combine(const std::vector<std::vector<KindGrids>>& passes, std::size_t kind,
                          std::size_t phase) {
    RateGrid grid = passes[0][kind][phase];
    for (std::size_t i = 0; i < grid.busy.size(); ++i) {
      std::vector<double> busy, alone;
      for (const std::vector<KindGrids>& pass : passes) {
        const RateGrid& g = pass[kind][phase];
        if (g.busy[i] == 0.0) continue;
        busy.push_back(g.busy[i]);
        alone.push_back(g.alone[i]);
      }
      if (busy.empty()) continue;
      grid.busy[i] = median(busy);
      grid.alone[i] = std::max(grid.busy[i], median(alone));
    }
    return grid;
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
      grids[p].busy[index_of(grids[p], at)] = work / times[p]->busy;
      grids[p].alone[index_of(grids[p], at)] = work / times[p]->alone;
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
  int passes_ = 1;
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
