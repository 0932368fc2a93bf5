// y = silu(gate) · up.   Shapes: x_N2F, gate first, y_NF.
#include "executor/ops/kernel_table.h"
#include "executor/ops/op_arguments.h"
#include "kernels/activation.h"

namespace bayplan::exec {
namespace {

template <class T>
kernels::Rows<T> half(T* packed, std::int64_t f, bool up) {
  return {packed + (up ? f : 0), 2 * f};
}

void forward(OpCall& call) {
  const std::int64_t f = call.outputs[0].shape.width(), n = call.outputs[0].shape.rows();
  with_compute_type(call.inputs[0].dtype, [&]<class T>(T) {
    const T* x = data<const T>(call.inputs[0]);
    T* y = data<T>(call.outputs[0]);
    parallel_ranges(call.threads, n, row_grain(f), [&](kernels::Range rows) {
      kernels::swiglu_forward(kernels::Rows<T>{y, f}, half(x, f, false), half(x, f, true), f, rows);
    });
  });
}

void backward_input(OpCall& call) {
  const OpInputGradient& dx = call.input_gradients[0];
  if (!wants_gradient(dx)) return;
  const OpTensor& dy = call.output_gradients[0];
  const std::int64_t f = dy.shape.width(), n = dy.shape.rows();
  with_compute_type(call.precision.compute, [&]<class T>(T) {
    const T* x = data<const T>(call.inputs[0]);
    T* target = data<T>(dx.target);
    parallel_ranges(call.threads, n, row_grain(f), [&](kernels::Range rows) {
      kernels::swiglu_backward(half(target, f, false), half(target, f, true),
                               kernels::Rows<const T>{data<const T>(dy), f}, half(x, f, false),
                               half(x, f, true), f, rows);
    });
    add_residual<T>(call, dx);
  });
}

}  // namespace

OpKernel swiglu_kernel() { return {forward, backward_input, nullptr}; }

}  // namespace bayplan::exec
