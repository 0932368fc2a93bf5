// Rotary positions on packed rows [q | k | v]: q and k turn, v is copied.
// Shapes: x_BSW with W = (heads + 2 kv_heads) · head_dim; table cos, sin [s, head_dim / 2].
#include "kernels/rope.h"

#include <cstring>

#include "executor/ops/kernel_table.h"
#include "executor/ops/op_arguments.h"

namespace bayplan::exec {
namespace {

template <class T, bool kBackward>
void rotate(const OpCall& call, const OpTensor& from, T* to) {
  using A = kernels::accumulate_t<T>;
  const OperatorAttributes& a = call.op->attributes;
  const std::int64_t seq = from.shape[1], width = from.shape.width();
  const std::int64_t table = seq * a.head_dim / 2;
  const Temporary<A> cosine(table), sine(table);
  kernels::rope_table(cosine.get(), sine.get(), seq, a.head_dim, a.theta);

  kernels::RopeShape shape;
  shape.heads = a.heads + a.kv_heads;  // q heads, then k heads
  shape.head_dim = a.head_dim;
  shape.out_stride = shape.x_stride = width;
  shape.seq = seq;
  const std::int64_t rotated = shape.heads * a.head_dim;
  const T* x = data<T>(from);
  parallel_ranges(call.threads, from.shape.rows(), row_grain(width), [&](kernels::Range rows) {
    if constexpr (kBackward) {
      kernels::rope_backward(to, x, cosine.get(), sine.get(), shape, rows);
    } else {
      kernels::rope_forward(to, x, cosine.get(), sine.get(), shape, rows);
    }
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      std::memcpy(to + r * width + rotated, x + r * width + rotated,
                  static_cast<std::size_t>(width - rotated) * sizeof(T));
    }
  });
}

void forward(OpCall& call) {
  with_compute_type(call.inputs[0].dtype, [&]<class T>(T) {
    rotate<T, false>(call, call.inputs[0], data<T>(call.outputs[0]));
  });
}

void backward_input(OpCall& call) {
  const OpInputGradient& dx = call.input_gradients[0];
  if (!wants_gradient(dx)) return;
  with_compute_type(call.precision.compute, [&]<class T>(T) {
    rotate<T, true>(call, call.output_gradients[0], data<T>(dx.target));
    add_residual<T>(call, dx);
  });
}

}  // namespace

OpKernel rope_kernel() { return {forward, backward_input, nullptr}; }

}  // namespace bayplan::exec
