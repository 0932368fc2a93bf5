// The entries of the operator table, one file a kind. For op_kernels.cpp only.
#pragma once

#include "executor/ops/op_kernels.h"

namespace bayplan::exec {

OpKernel embedding_kernel();
OpKernel linear_kernel();
OpKernel layer_norm_kernel();
OpKernel rms_norm_kernel();
OpKernel rope_kernel();
OpKernel attention_kernel();
OpKernel gelu_kernel();
OpKernel swiglu_kernel();
OpKernel residual_add_kernel();
OpKernel dropout_kernel();
OpKernel lm_head_loss_kernel();

}  // namespace bayplan::exec
