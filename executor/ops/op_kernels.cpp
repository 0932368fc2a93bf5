#include "executor/ops/op_kernels.h"

#include <array>

#include "executor/ops/kernel_table.h"

namespace bayplan::exec {

const OpKernel& op_kernel(OperatorKind kind) {
  // In the order of OperatorKind.
  static const std::array<OpKernel, kOperatorKindCount> table = {
      embedding_kernel(),    linear_kernel(),    layer_norm_kernel(),  rms_norm_kernel(),
      rope_kernel(),         attention_kernel(), gelu_kernel(),        swiglu_kernel(),
      residual_add_kernel(), dropout_kernel(),   lm_head_loss_kernel()};
  return table.at(static_cast<std::size_t>(kind));
}

}  // namespace bayplan::exec
