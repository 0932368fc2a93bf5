#include "executor/calibrate/operator_bench_torch.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "executor/calibrate/worker_gang.h"
#include "executor/memory/allocator_hook_torch.h"
#include "executor/ops/op_kernels.h"
#include "kernels/philox.h"
#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

// A worker's copies of the tensors together fill at least this much, more than an L2 cache holds
// and less than a share of an L3: what an operator reads was written several operators ago.
constexpr std::int64_t kRotatedBytes = std::int64_t{4} << 20;
constexpr std::int64_t kMostCopies = 16;

struct Aligned {
  void operator()(void* p) const { std::free(p); }
};
using Block = std::unique_ptr<std::byte, Aligned>;

Block allocate(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(round_up(std::max<std::int64_t>(bytes, 1), 4096));
  auto* p = static_cast<std::byte*>(std::aligned_alloc(4096, size));
  if (p == nullptr) throw std::bad_alloc();
  std::memset(p, 0, size);
  return Block(p);
}

std::int64_t bytes_of(const Shape& shape, DType type) { return shape.count() * dtype_size(type); }

/// Values of about unit size; indices below `bound`.
void fill(void* data, std::int64_t n, DType type, std::uint32_t stream, std::int64_t bound) {
  if (type == DType::kInt32) {
    auto* ids = static_cast<std::int32_t*>(data);
    for (std::int64_t i = 0; i < n; ++i) ids[i] = static_cast<std::int32_t>((i * 7919 + stream) % bound);
    return;
  }
  const kernels::PhiloxStream random{1, 0, stream};
  const kernels::Range all{0, n};
  if (type == DType::kFp64) {
    kernels::philox_normal(static_cast<double*>(data), random, 0, 0.0, 1.0, all);
  } else if (type == DType::kFp32) {
    kernels::philox_normal(static_cast<float*>(data), random, 0, 0.0, 1.0, all);
  } else {
    std::vector<float> values(static_cast<std::size_t>(n));
    kernels::philox_normal(values.data(), random, 0, 0.0, 1.0, all);
    auto* out = static_cast<kernels::bf16*>(data);
    for (std::int64_t i = 0; i < n; ++i) out[i] = kernels::to_bf16(values[static_cast<std::size_t>(i)]);
  }
}

/// Everything that one call of the operator touches.
struct CallData {
  OpCall call;
  std::vector<Block> blocks;
  std::int64_t bytes = 0;
};

class CallBuilder {
 public:
  CallBuilder(const OperatorPoint& point, const Precision& precision, int threads)
      : point_(point), spec_(operator_spec(point.op.kind)), precision_(precision), threads_(threads) {
    spec_.infer(point.op, point.inputs, point.batch, outputs_, statistics_);
  }

  /// Tensors for all phases, forward already run.
  CallData build(std::uint32_t seed) {
    CallData data;
    data_ = &data;
    stream_ = seed * 64;
    OpCall& call = data.call;
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
        slot.action = spec_.gradient_is_identity ? GradientSlot::Action::kCopyAdd : GradientSlot::Action::kWrite;
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
    return data;
  }

  std::int64_t workspace() const {
    std::int64_t bytes = 0;
    const OperatorShapes shapes{point_.inputs, outputs_, statistics_};
    for (const Phase phase : {Phase::kForward, Phase::kBackwardInput, Phase::kBackwardWeight}) {
      bytes = std::max(bytes, spec_.workspace(point_.op, shapes, phase, precision_, threads_).value);
    }
    return bytes + (std::int64_t{64} << 10);
  }

 private:
  OpTensor tensor(const TensorShape& t, bool with_values) {
    return raw(t.shape, element_dtype(t.element, precision_), with_values);
  }

  OpTensor raw(const Shape& shape, DType type, bool with_values) {
    const std::int64_t bytes = bytes_of(shape, type);
    data_->blocks.push_back(allocate(bytes));
    data_->bytes += bytes;
    void* at = data_->blocks.back().get();
    const std::int64_t bound = std::max<std::int64_t>(point_.op.attributes.vocab, 1);
    if (with_values) fill(at, shape.count(), type, stream_++, bound);
    return {at, shape, type};
  }

  const OperatorPoint& point_;
  const OperatorSpec& spec_;
  Precision precision_;
  int threads_;
  std::vector<TensorShape> outputs_, statistics_;
  CallData* data_ = nullptr;
  std::uint32_t stream_ = 0;
};

/// A worker's rotating copies, and its workspace.
struct Rotation {
  std::vector<CallData> copies;
  Block workspace;
  WorkspaceRegion region;
};

std::shared_ptr<Rotation> make_rotation(const OperatorPoint& point, const Precision& precision, int threads) {
  auto rotation = std::make_shared<Rotation>();
  CallBuilder builder(point, precision, threads);
  rotation->workspace = allocate(builder.workspace());
  rotation->region = WorkspaceRegion(rotation->workspace.get(), builder.workspace(), {});
  rotation->copies.push_back(builder.build(0));
  const std::int64_t copies = std::clamp<std::int64_t>(
      ceil_div(kRotatedBytes, rotation->copies.front().bytes), 1, kMostCopies);
  for (std::int64_t c = 1; c < copies; ++c) rotation->copies.push_back(builder.build(static_cast<std::uint32_t>(c)));
  return rotation;
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

TensorShape rows_of(std::int64_t rows, std::int64_t width) { return {Shape{1, rows, width}, ElementClass::kCompute}; }

}  // namespace

PhaseSeconds time_operator(const OperatorPoint& point, const Precision& precision, const BenchOptions& options) {
  PhaseSeconds out;
  const std::array<KernelFunction, 3> phases = phases_of(point.op.kind);
  bool first = true;
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const KernelFunction phase = phases[p];
    if (phase == nullptr) continue;
    // The statistics that backward reads come from a forward of the same data.
    const bool prepares = !first;
    const GangTime time = time_gang({options.workers, options.seconds, 3, 2}, [&](int) -> TimedCall {
      at::set_num_threads(1);
      const auto rotation = make_rotation(point, precision, options.threads);
      const auto run = [rotation](KernelFunction kernel, std::int64_t call) {
        const RegionScope scope(&rotation->region);
        kernel(rotation->copies[static_cast<std::size_t>(call) % rotation->copies.size()].call);
      };
      if (prepares) {
        for (std::size_t c = 0; c < rotation->copies.size(); ++c) run(phases[0], static_cast<std::int64_t>(c));
      }
      return [run, phase](std::int64_t call) { run(phase, call); };
    });
    first = false;
    out[p] = time.median;
    if (time.median > options.longest_call) break;
  }
  return out;
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
      a.head_dim = 64;
      a.kv_heads = std::max<std::int64_t>(1, size[1] / (3 * 64));
      a.heads = size[1] / 64 - 2 * a.kv_heads;
      point.inputs = {rows_of(size[0], size[1])};
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
