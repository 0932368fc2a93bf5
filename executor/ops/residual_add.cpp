// y = skip + branch. Both inputs take the output's gradient, so backward only moves or adds it.
#include <cstring>

#include "executor/ops/kernel_table.h"
#include "executor/ops/op_arguments.h"
#include "kernels/elementwise.h"

namespace bayplan::exec {
namespace {

void forward(OpCall& call) {
  const OpTensor& y = call.outputs[0];
  with_compute_type(y.dtype, [&]<class T>(T) {
    parallel_ranges(call.threads, y.shape.count(), kElementGrain, [&](kernels::Range r) {
      kernels::residual_add(data<T>(y), data<T>(call.inputs[0]), data<T>(call.inputs[1]), r);
    });
  });
}

void backward_input(OpCall& call) {
  const OpTensor& dy = call.output_gradients[0];
  with_compute_type(call.precision.compute, [&]<class T>(T) {
    for (const OpInputGradient& slot : call.input_gradients) {
      if (slot.action != GradientSlot::Action::kCopyAdd) continue;
      T* target = data<T>(slot.target);
      const T* residual = static_cast<const T*>(slot.residual);
      parallel_ranges(call.threads, dy.shape.count(), kElementGrain, [&](kernels::Range r) {
        if (residual != nullptr) {
          kernels::residual_add(target, residual, data<T>(dy), r);
        } else {
          std::memcpy(target + r.begin, data<T>(dy) + r.begin,
                      static_cast<std::size_t>(r.end - r.begin) * sizeof(T));
        }
      });
    }
  });
}

}  // namespace

OpKernel residual_add_kernel() { return {forward, backward_input, nullptr}; }

}  // namespace bayplan::exec
