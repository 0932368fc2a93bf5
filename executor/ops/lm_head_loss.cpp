// logits = x · weightᵀ and the summed cross-entropy. A forward that keeps for backward leaves the
// logits' gradient in their place. Shapes: x_NH, labels_N, logits_NP, lse_N, weight_VH, loss [1].
#include <algorithm>

#include "executor/ops/kernel_table.h"
#include "executor/ops/op_arguments.h"
#include "executor/ops/product.h"
#include "kernels/cross_entropy.h"
#include "kernels/optim.h"

namespace bayplan::exec {
namespace {

/// Bytes of logits that are turned into their gradient while they are in the second-level cache.
constexpr std::int64_t kCachedBytes = std::int64_t{128} << 10;

struct Sizes {
  std::int64_t n, h, v, padded;
  explicit Sizes(const OpCall& call)
      : n(call.inputs[0].shape.rows()),
        h(call.op->attributes.in_features),
        v(call.op->attributes.vocab),
        padded(call.statistics[0].shape.width()) {}
};

template <class T>
void softmax_loss(OpCall& call, const Sizes& s) {
  using A = kernels::accumulate_t<T>;
  T* logits = data<T>(call.statistics[0]);
  A* lse = data<A>(call.statistics[1]);
  const auto* labels = data<const std::int32_t>(call.inputs[1]);
  const Temporary<A> row_loss(s.n);
  const kernels::LogitsShape shape{s.v, s.padded, 0};
  const std::int64_t rows_at_once =
      std::max<std::int64_t>(1, kCachedBytes / (s.padded * static_cast<std::int64_t>(sizeof(T))));
  parallel_ranges(call.threads, s.n, row_grain(s.v), [&](kernels::Range rows) {
    for (std::int64_t r = rows.begin; r < rows.end; r += rows_at_once) {
      const kernels::Range some{r, std::min(rows.end, r + rows_at_once)};
      kernels::cross_entropy_forward(row_loss.get(), lse, static_cast<A*>(nullptr), logits, labels,
                                     shape, some);
      if (call.keep_for_backward) {
        kernels::cross_entropy_backward(logits, lse, labels, shape, A{1}, some);
      }
    }
  });
  *data<double>(call.outputs[0]) += kernels::sum_ascending(row_loss.get(), s.n);
}

Matrix logits(const OpCall& call, const Sizes& s, bool transposed) {
  void* data = call.statistics[0].data;
  return transposed ? Matrix{data, s.v, s.n, s.padded, true}
                    : Matrix{data, s.n, s.v, s.padded, false};
}

/// Adds to the loss; the caller zeroes it before the step's first micro-batch.
void forward(OpCall& call) {
  const Sizes s(call);
  const DType type = call.precision.compute;
  multiply(call.threads, type, logits(call, s, false), matrix(call.inputs[0].data, s.n, s.h),
           transpose(call.parameters[0].data, s.h, s.v));
  with_compute_type(type, [&]<class T>(T) { softmax_loss<T>(call, s); });
}

void backward_input(OpCall& call) {
  const OpInputGradient& dx = call.input_gradients[0];
  if (!wants_gradient(dx)) return;
  const Sizes s(call);
  const DType type = call.precision.compute;
  multiply(call.threads, type, matrix(dx.target.data, s.n, s.h), logits(call, s, false),
           matrix(call.parameters[0].data, s.v, s.h));
  with_compute_type(type, [&]<class T>(T) { add_residual<T>(call, dx); });
}

void backward_weight(OpCall& call) {
  const Sizes s(call);
  multiply_accumulate(call.threads, call.precision.compute,
                      matrix(call.parameter_gradients[0].data, s.v, s.h), logits(call, s, true),
                      matrix(call.inputs[0].data, s.n, s.h));
}

}  // namespace

OpKernel lm_head_loss_kernel() { return {forward, backward_input, backward_weight}; }

}  // namespace bayplan::exec
