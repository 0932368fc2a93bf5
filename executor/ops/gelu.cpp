// gelu, tanh form, element by element.
#include "executor/ops/kernel_table.h"
#include "executor/ops/op_arguments.h"
#include "kernels/activation.h"

namespace bayplan::exec {
namespace {

void forward(OpCall& call) {
  const OpTensor& x = call.inputs[0];
  with_compute_type(x.dtype, [&]<class T>(T) {
    parallel_ranges(call.threads, x.shape.count(), kElementGrain, [&](kernels::Range r) {
      kernels::gelu_tanh_forward(data<T>(call.outputs[0]), data<T>(x), r);
    });
  });
}

void backward_input(OpCall& call) {
  const OpInputGradient& dx = call.input_gradients[0];
  if (!wants_gradient(dx)) return;
  const OpTensor& x = call.inputs[0];
  with_compute_type(x.dtype, [&]<class T>(T) {
    parallel_ranges(call.threads, x.shape.count(), kElementGrain, [&](kernels::Range r) {
      kernels::gelu_tanh_backward(data<T>(dx.target), data<T>(call.output_gradients[0]), data<T>(x),
                                  r);
    });
    add_residual<T>(call, dx);
  });
}

}  // namespace

OpKernel gelu_kernel() { return {forward, backward_input, nullptr}; }

}  // namespace bayplan::exec
