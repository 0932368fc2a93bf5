// x = weight[id] + positions[position].   Shapes: ids_BS, x_BSH, weight_VH, positions_PH.
#include "kernels/embedding.h"

#include "executor/ops/kernel_table.h"
#include "executor/ops/op_arguments.h"

namespace bayplan::exec {
namespace {

kernels::EmbeddingShape lookup(const OpCall& call) {
  kernels::EmbeddingShape shape;
  shape.width = call.op->attributes.out_features;
  shape.seq = call.inputs[0].shape[1];
  shape.vocabulary = {0, call.op->attributes.vocab};
  return shape;
}

void forward(OpCall& call) {
  const OpTensor& x = call.outputs[0];
  const kernels::EmbeddingShape shape = lookup(call);
  const auto* ids = data<const std::int32_t>(call.inputs[0]);
  with_compute_type(x.dtype, [&]<class T>(T) {
    const T* positions = call.parameters.size() > 1 ? data<T>(call.parameters[1]) : nullptr;
    parallel_ranges(call.threads, x.shape.rows(), row_grain(shape.width), [&](kernels::Range r) {
      kernels::embedding_forward(data<T>(x), data<T>(call.parameters[0]), positions, ids, shape, r);
    });
  });
}

void backward_weight(OpCall& call) {
  const OpTensor& dx = call.output_gradients[0];
  const kernels::EmbeddingShape shape = lookup(call);
  const auto* ids = data<const std::int32_t>(call.inputs[0]);
  with_compute_type(call.precision.compute, [&]<class T>(T) {
    using A = kernels::accumulate_t<T>;
    A* positions =
        call.parameter_gradients.size() > 1 ? data<A>(call.parameter_gradients[1]) : nullptr;
    const std::int64_t tokens = dx.shape.rows();
    parallel_ranges(call.threads, shape.width, row_grain(tokens), [&](kernels::Range columns) {
      kernels::embedding_backward_weight(data<A>(call.parameter_gradients[0]), positions,
                                         data<T>(dx), ids, shape, tokens, columns);
    });
  });
}

}  // namespace

OpKernel embedding_kernel() { return {forward, nullptr, backward_weight}; }

}  // namespace bayplan::exec
