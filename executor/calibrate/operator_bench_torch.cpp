#include "executor/calibrate/operator_bench_torch.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "executor/memory/allocator_hook_torch.h"
#include "executor/ops/op_kernels.h"
#include "kernels/philox.h"
#include "planner/core/check.h"
#include "planner/program/unit_layout.h"

namespace bayplan::exec {
namespace {

// A worker's copies of the tensors together fill at least this much, more than an L2 cache holds
// and less than a share of an L3: what an operator reads was written several operators ago.
constexpr std::int64_t kRotatedBytes = std::int64_t{4} << 20;
constexpr std::int64_t kMostCopies = 16;

constexpr std::int64_t kRopeHeadDim = 64;
constexpr std::int64_t kLeastRounds = 2;
constexpr std::int64_t kRoundCalls = 4;

constexpr std::int64_t kWorkerBytes = std::int64_t{96} << 20;
constexpr std::int64_t kPatternValues = std::int64_t{1} << 16;

std::int64_t bytes_of(const Shape& shape, DType type) { return shape.count() * dtype_size(type); }

/// Standard normal values in every compute type, repeated over tensors.
struct Pattern {
  std::vector<double> wide;
  std::vector<float> single;
  std::vector<kernels::bf16> half;

  Pattern() : wide(kPatternValues), single(kPatternValues), half(kPatternValues) {
    const kernels::Range all{0, kPatternValues};
    kernels::philox_normal(wide.data(), {1, 0, 0}, 0, 0.0, 1.0, all);
    kernels::philox_normal(single.data(), {1, 0, 0}, 0, 0.0, 1.0, all);
    std::transform(single.begin(), single.end(), half.begin(), kernels::to_bf16);
  }
  const void* of(DType type) const {
    if (type == DType::kFp64) return wide.data();
    return type == DType::kFp32 ? static_cast<const void*>(single.data()) : half.data();
  }
};

/// Values of about unit size; indices below `bound`.
void fill(void* data, std::int64_t n, DType type, std::int64_t bound) {
  if (type == DType::kInt32) {
    auto* ids = static_cast<std::int32_t*>(data);
    for (std::int64_t i = 0; i < n; ++i) ids[i] = static_cast<std::int32_t>(i * 7919 % bound);
    return;
  }
  static const Pattern pattern;
  const std::int64_t size = dtype_size(type);
  for (std::int64_t i = 0; i < n; i += kPatternValues) {
    const auto bytes = static_cast<std::size_t>(std::min(kPatternValues, n - i) * size);
    std::memcpy(static_cast<std::byte*>(data) + i * size, pattern.of(type), bytes);
  }
}

/// Bump allocation over one worker's memory; without memory it only counts.
class Pool {
 public:
  explicit Pool(std::byte* memory = nullptr) : memory_(memory) {}
  std::byte* take(std::int64_t bytes) {
    std::byte* at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += round_up(std::max<std::int64_t>(bytes, 1), kTensorAlignment);
    BAYPLAN_CHECK(memory_ == nullptr || used_ <= kWorkerBytes,
                  "an operator larger than a worker's memory");
    return at;
  }
  std::int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::int64_t used_ = 0;
};

class CallBuilder {
 public:
  CallBuilder(const OperatorPoint& point, const Precision& precision, int threads)
      : point_(point),
        spec_(operator_spec(point.op.kind)),
        precision_(precision),
        threads_(threads) {
    spec_.infer(point.op, point.inputs, point.batch, outputs_, statistics_);
  }

  /// Everything that one call of any phase touches.
  OpCall build(Pool& pool) {
    pool_ = &pool;
    OpCall call;
    call.op = &point_.op;
    call.precision = precision_;
    call.threads = threads_;
    call.random = {1, 0, 7, 0, 0.1};
    for (const TensorShape& t : point_.inputs) call.inputs.push_back(tensor(t, true));
    for (const TensorShape& t : outputs_) call.outputs.push_back(tensor(t, false));
    for (const TensorShape& t : statistics_) call.statistics.push_back(tensor(t, false));
    for (const TensorShape& t : outputs_) call.output_gradients.push_back(tensor(t, true));
    for (std::size_t i = 0; i < point_.inputs.size(); ++i) {
      OpInputGradient slot;
      if ((spec_.differentiable_inputs >> i & 1u) != 0) {
        slot.action = spec_.gradient_is_identity ? GradientSlot::Action::kCopyAdd
                                                 : GradientSlot::Action::kWrite;
        slot.target = tensor(point_.inputs[i], false);
        // Norms add the gradient of the branch around them, which is how they are used.
        if (spec_.adds_residual_gradient) {
          slot.action = GradientSlot::Action::kAdd;
          slot.residual = slot.target.data;
        }
        if (spec_.gradient_is_identity) slot.residual = slot.target.data;
      }
      call.input_gradients.push_back(slot);
    }
    for (const ParameterSpec& p : spec_.parameters(point_.op)) {
      call.parameters.push_back(raw(p.shape, precision_.compute, true));
      call.parameter_gradients.push_back(raw(p.shape, precision_.gradient, false));
    }
    return call;
  }

  std::int64_t workspace() const {
    std::int64_t bytes = 0;
    const OperatorShapes shapes{point_.inputs, outputs_, statistics_};
    for (const Phase phase : {Phase::kForward, Phase::kBackwardInput, Phase::kBackwardWeight}) {
      bytes =
          std::max(bytes, spec_.workspace(point_.op, shapes, phase, precision_, threads_).value);
    }
    return bytes + (std::int64_t{64} << 10);
  }

 private:
  OpTensor tensor(const TensorShape& t, bool with_values) {
    return raw(t.shape, element_dtype(t.element, precision_), with_values);
  }

  OpTensor raw(const Shape& shape, DType type, bool with_values) {
    void* at = pool_->take(bytes_of(shape, type));
    if (at == nullptr) return {at, shape, type};
    const std::int64_t bound = std::max<std::int64_t>(point_.op.attributes.vocab, 1);
    if (with_values) {
      fill(at, shape.count(), type, bound);
    } else {
      std::memset(at, 0, static_cast<std::size_t>(bytes_of(shape, type)));
    }
    return {at, shape, type};
  }

  const OperatorPoint& point_;
  const OperatorSpec& spec_;
  Precision precision_;
  int threads_;
  std::vector<TensorShape> outputs_, statistics_;
  Pool* pool_ = nullptr;
};

/// Bytes of one copy of the operator's tensors.
std::int64_t copy_bytes(const OperatorPoint& point, const Precision& precision, int threads) {
  Pool counter;
  CallBuilder(point, precision, threads).build(counter);
  return counter.used();
}

using KernelFunction = void (*)(OpCall&);

std::array<KernelFunction, 3> phases_of(OperatorKind kind) {
  const OpKernel& kernel = op_kernel(kind);
  return {kernel.forward, kernel.backward_input, kernel.backward_weight};
}

Operator plain(OperatorKind kind) {
  Operator op;
  op.kind = kind;
  op.name = std::string(operator_spec(kind).name);
  op.attributes.epsilon = 1e-5;
  op.attributes.theta = 10000.0;
  return op;
}

TensorShape rows_of(std::int64_t rows, std::int64_t width) {
  return {Shape{1, rows, width}, ElementClass::kCompute};
}

}  // namespace

/// One worker's memory, and the copies of an operator's tensors in it.
struct OperatorBench::Worker {
  std::byte* memory;
  std::vector<OpCall> copies;
  WorkspaceRegion region;

  Worker() : memory(static_cast<std::byte*>(std::aligned_alloc(4096, kWorkerBytes))) {
    if (memory == nullptr) throw std::bad_alloc();
  }
  ~Worker() { std::free(memory); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void prepare(const OperatorPoint& point, const Precision& precision, int threads) {
    Pool pool(memory);
    CallBuilder builder(point, precision, threads);
    region = WorkspaceRegion(pool.take(builder.workspace()), builder.workspace(), {});
    const std::int64_t room = kWorkerBytes - pool.used();
    const std::int64_t bytes = copy_bytes(point, precision, threads);
    const std::int64_t wanted =
        std::clamp<std::int64_t>(ceil_div(kRotatedBytes, bytes), 1, kMostCopies);
    copies.clear();
    for (std::int64_t c = 0; c < std::min(wanted, room / bytes); ++c)
      copies.push_back(builder.build(pool));
  }

  void run(KernelFunction kernel, std::int64_t call) {
    const RegionScope scope(&region);
    kernel(copies[static_cast<std::size_t>(call) % copies.size()]);
  }
};

OperatorBench::OperatorBench() { install_allocator_hook(); }
OperatorBench::~OperatorBench() = default;

OperatorBench::Worker& OperatorBench::worker(int index) {
  while (workers_.size() <= static_cast<std::size_t>(index))
    workers_.push_back(std::make_unique<Worker>());
  return *workers_[static_cast<std::size_t>(index)];
}

bool OperatorBench::fits(const OperatorPoint& point, const Precision& precision) const {
  return copy_bytes(point, precision, 1) + CallBuilder(point, precision, 1).workspace() <=
         kWorkerBytes;
}

PhaseTimes OperatorBench::time(const OperatorPoint& point, const Precision& precision,
                               const BenchOptions& options) {
  worker(options.workers - 1);  // before threads share the list
  PhaseTimes out;
  const std::array<KernelFunction, 3> phases = phases_of(point.op.kind);
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const KernelFunction phase = phases[p];
    if (phase == nullptr || (operator_spec(point.op.kind).gradient_is_identity && p > 0)) continue;
    // Later phases read what the first one, forward, left in the same tensors.
    const bool first = p == 0;
    const GangTime time =
        time_gang({options.workers, options.seconds, 3, 2, options.threads == 1},
                  [&](int index) -> TimedCall {
                    Worker& w = worker(index);
                    at::set_num_threads(1);  // per thread: what a rank's threads do
                    if (first) w.prepare(point, precision, options.threads);
                    for (std::size_t c = 0; first && c + 2 < w.copies.size(); ++c)
                      w.run(phase, static_cast<std::int64_t>(c));
                    return [&w, phase](std::int64_t call) { w.run(phase, call); };
                  });
    out[p] = time;
    if (time.busy > options.longest_call) break;
  }
  return out;
}

double OperatorBench::calls_per_second(const OperatorPoint& point, const Precision& precision,
                                       const BenchOptions& options) {
  worker(options.workers - 1);
  const KernelFunction forward = phases_of(point.op.kind)[0];
  return time_gang({options.workers, options.seconds, 3, 2, options.threads == 1},
                   [&](int index) -> TimedCall {
                     Worker& w = worker(index);
                     at::set_num_threads(1);
                     w.prepare(point, precision, options.threads);
                     return [&w, forward](std::int64_t call) { w.run(forward, call); };
                   })
      .calls_per_second;
}

ThreadTimes OperatorBench::time_threads(const OperatorPoint& point, const Precision& precision,
                                        int threads, double seconds) {
  BAYPLAN_CHECK(fits(point, precision), "an operator larger than a worker's memory");
  std::vector<KernelFunction> phases;
  for (const KernelFunction phase : phases_of(point.op.kind)) {
    if (phase != nullptr && !(operator_spec(point.op.kind).gradient_is_identity && !phases.empty()))
      phases.push_back(phase);
  }
  Worker& w = worker(0);
  std::array<std::vector<double>, 2> times;
  const auto work = [&] {
    using Clock = std::chrono::steady_clock;
    at::set_num_threads(1);
    w.prepare(point, precision, threads);
    const Clock::time_point start = Clock::now();
    for (std::int64_t round = 0;; ++round) {
      for (std::size_t several = 0; several < times.size(); ++several) {
        for (OpCall& call : w.copies) call.threads = several != 0 ? threads : 1;
        for (std::int64_t call = 0; call < kRoundCalls; ++call) {
          const Clock::time_point from = Clock::now();
          for (const KernelFunction phase : phases) w.run(phase, round * kRoundCalls + call);
          const double taken = std::chrono::duration<double>(Clock::now() - from).count();
          if (call > 0) times[several].push_back(taken);  // the first one wakes the team
        }
      }
      if (round >= kLeastRounds &&
          std::chrono::duration<double>(Clock::now() - start).count() > seconds)
        return;
    }
  };
  std::thread(work).join();  // a rank's thread is fresh, too, and has a team of its own
  const auto phase_count = static_cast<double>(phases.size());
  return {median(times[0]) / phase_count, median(times[1]) / phase_count};
}

OperatorPoint point_of(OperatorKind kind, const std::array<std::int64_t, 3>& size) {
  OperatorPoint point;
  point.op = plain(kind);
  OperatorAttributes& a = point.op.attributes;
  point.batch = {1, size[0]};
  switch (kind) {
    case OperatorKind::kLinear:
      a.in_features = size[1];
      a.out_features = size[2];
      a.bias = true;
      point.inputs = {rows_of(size[0], size[1])};
      break;
    case OperatorKind::kLmHeadLoss:
      a.in_features = size[1];
      a.out_features = size[2];
      a.vocab = size[2];
      point.inputs = {rows_of(size[0], size[1]), {Shape{1, size[0]}, ElementClass::kIndex}};
      break;
    case OperatorKind::kAttention:
      a.heads = size[0];
      a.kv_heads = size[0];
      a.head_dim = size[2];
      point.batch = {1, size[1]};
      point.inputs = {rows_of(size[1], 3 * size[0] * size[2])};
      break;
    case OperatorKind::kEmbedding:
      a.vocab = 4096;
      a.out_features = size[1];
      a.positions = size[0];
      point.inputs = {{Shape{1, size[0]}, ElementClass::kIndex}};
      break;
    case OperatorKind::kRope:
      a.head_dim = kRopeHeadDim;
      a.kv_heads = 1;
      a.heads = size[1] / kRopeHeadDim - 2;
      point.batch = {std::max<std::int64_t>(1, size[0] / size[2]), std::min(size[0], size[2])};
      point.inputs = {
          {Shape{point.batch.micro_batch, point.batch.seq, size[1]}, ElementClass::kCompute}};
      break;
    case OperatorKind::kSwiglu:
      point.inputs = {rows_of(size[0], 2 * size[1])};
      break;
    case OperatorKind::kResidualAdd:
      point.inputs = {rows_of(size[0], size[1]), rows_of(size[0], size[1])};
      break;
    case OperatorKind::kLayerNorm:
    case OperatorKind::kRmsNorm:
      a.out_features = size[1];
      a.bias = kind == OperatorKind::kLayerNorm;
      point.inputs = {rows_of(size[0], size[1])};
      break;
    case OperatorKind::kGelu:
    case OperatorKind::kDropout:
      point.inputs = {rows_of(size[0], size[1])};
      break;
  }
  return point;
}

}  // namespace bayplan::exec
