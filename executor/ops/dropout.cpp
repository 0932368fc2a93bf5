// dropout: the mask is a function of the global element, so backward draws it again.
#include "kernels/dropout.h"

#include "executor/ops/kernel_table.h"
#include "executor/ops/op_arguments.h"

namespace bayplan::exec {
namespace {

template <class T>
void apply(const OpCall& call, T* to, const OpTensor& from) {
  const OpRandom& random = call.random;
  const kernels::PhiloxStream stream{random.seed, static_cast<std::uint32_t>(random.step),
                                     random.op};
  parallel_ranges(call.threads, from.shape.count(), kElementGrain, [&](kernels::Range r) {
    kernels::dropout(to, data<const T>(from), random.dropout, stream, random.element_base, r);
  });
}

void forward(OpCall& call) {
  with_compute_type(call.inputs[0].dtype,
                    [&]<class T>(T) { apply<T>(call, data<T>(call.outputs[0]), call.inputs[0]); });
}

void backward_input(OpCall& call) {
  const OpInputGradient& dx = call.input_gradients[0];
  if (!wants_gradient(dx)) return;
  with_compute_type(call.precision.compute, [&]<class T>(T) {
    apply<T>(call, data<T>(dx.target), call.output_gradients[0]);
    add_residual<T>(call, dx);
  });
}

}  // namespace

OpKernel dropout_kernel() { return {forward, backward_input, nullptr}; }

}  // namespace bayplan::exec
