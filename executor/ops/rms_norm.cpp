// rms_norm.   Shapes: x_NH, y_NH, rstd_N, weight_H with N = b·s rows.
#include "executor/ops/kernel_table.h"
#include "executor/ops/op_arguments.h"
#include "kernels/norm.h"

namespace bayplan::exec {
namespace {

void forward(OpCall& call) {
  const OpTensor& x = call.inputs[0];
  const std::int64_t h = x.shape.width();
  with_compute_type(x.dtype, [&]<class T>(T) {
    using A = kernels::accumulate_t<T>;
    parallel_ranges(call.threads, x.shape.rows(), row_grain(h), [&](kernels::Range rows) {
      kernels::rms_norm_forward(data<T>(call.outputs[0]), data<A>(call.statistics[0]), data<T>(x),
                                data<T>(call.parameters[0]), h, call.op->attributes.epsilon, rows);
    });
  });
}

void backward_input(OpCall& call) {
  const OpInputGradient& dx = call.input_gradients[0];
  if (!wants_gradient(dx)) return;
  const OpTensor& x = call.inputs[0];
  const std::int64_t h = x.shape.width();
  with_compute_type(x.dtype, [&]<class T>(T) {
    using A = kernels::accumulate_t<T>;
    const T* residual =
        dx.action == GradientSlot::Action::kAdd ? static_cast<const T*>(dx.residual) : nullptr;
    parallel_ranges(call.threads, x.shape.rows(), row_grain(h), [&](kernels::Range rows) {
      kernels::rms_norm_backward_input(
          data<T>(dx.target), residual, data<T>(call.output_gradients[0]), data<T>(x),
          data<T>(call.parameters[0]), data<A>(call.statistics[0]), h, rows);
    });
  });
}

void backward_weight(OpCall& call) {
  const OpTensor& x = call.inputs[0];
  const std::int64_t h = x.shape.width(), n = x.shape.rows();
  with_compute_type(x.dtype, [&]<class T>(T) {
    using A = kernels::accumulate_t<T>;
    parallel_ranges(call.threads, h, row_grain(n), [&](kernels::Range columns) {
      kernels::rms_norm_backward_weight(data<A>(call.parameter_gradients[0]),
                                        data<T>(call.output_gradients[0]), data<T>(x),
                                        data<A>(call.statistics[0]), n, h, true, columns);
    });
  });
}

}  // namespace

OpKernel rms_norm_kernel() { return {forward, backward_input, backward_weight}; }

}  // namespace bayplan::exec
