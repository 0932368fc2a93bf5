// y = x · weightᵀ + bias.   Shapes: x_NI, y_NO, weight_OI, bias_O with N = b·s rows.
#include "executor/ops/kernel_table.h"
#include "executor/ops/op_arguments.h"
#include "executor/ops/product.h"
#include "kernels/elementwise.h"

namespace bayplan::exec {
namespace {

struct Sizes {
  std::int64_t n, i, o;
  explicit Sizes(const OpCall& call)
      : n(call.inputs[0].shape.rows()),
        i(call.op->attributes.in_features),
        o(call.op->attributes.out_features) {}
};

void forward(OpCall& call) {
  const Sizes s(call);
  const OpTensor& y = call.outputs[0];
  multiply(call.threads, y.dtype, matrix(y.data, s.n, s.o), matrix(call.inputs[0].data, s.n, s.i),
           transpose(call.parameters[0].data, s.i, s.o));
  if (!call.op->attributes.bias) return;
  with_compute_type(y.dtype, [&]<class T>(T) {
    parallel_ranges(call.threads, s.n, row_grain(s.o), [&](kernels::Range rows) {
      kernels::add_bias_rows(data<T>(y), data<T>(y), data<T>(call.parameters[1]), s.o, rows);
    });
  });
}

void backward_input(OpCall& call) {
  const Sizes s(call);
  const OpInputGradient& dx = call.input_gradients[0];
  if (!wants_gradient(dx)) return;
  multiply(call.threads, call.precision.compute, matrix(dx.target.data, s.n, s.i),
           matrix(call.output_gradients[0].data, s.n, s.o),
           matrix(call.parameters[0].data, s.o, s.i));
  with_compute_type(call.precision.compute, [&]<class T>(T) { add_residual<T>(call, dx); });
}

void backward_weight(OpCall& call) {
  const Sizes s(call);
  const OpTensor& dy = call.output_gradients[0];
  multiply_accumulate(call.threads, call.precision.compute,
                      matrix(call.parameter_gradients[0].data, s.o, s.i),
                      transpose(dy.data, s.o, s.n), matrix(call.inputs[0].data, s.n, s.i));
  if (!call.op->attributes.bias) return;
  with_compute_type(call.precision.compute, [&]<class T>(T) {
    auto* dbias = data<kernels::accumulate_t<T>>(call.parameter_gradients[1]);
    parallel_ranges(call.threads, s.o, row_grain(s.n), [&](kernels::Range columns) {
      kernels::bias_gradient(dbias, data<T>(dy), s.n, s.o, true, columns);
    });
  });
}

}  // namespace

OpKernel linear_kernel() { return {forward, backward_input, backward_weight}; }

}  // namespace bayplan::exec
