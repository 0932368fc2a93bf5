// The operator table, one family a file. For planner/core/operator.cpp only: everybody else
// reads an entry through operator_spec().
#pragma once

#include "planner/core/check.h"
#include "planner/core/operator.h"
#include "planner/core/operators/tiling.h"

namespace bayplan {

OperatorSpec embedding_spec();
OperatorSpec linear_spec();
OperatorSpec layer_norm_spec();
OperatorSpec rms_norm_spec();
OperatorSpec rope_spec();
OperatorSpec attention_spec();
OperatorSpec gelu_spec();
OperatorSpec swiglu_spec();
OperatorSpec residual_add_spec();
OperatorSpec dropout_spec();
OperatorSpec lm_head_loss_spec();

/// Bytes of `elements` compute-, reduction- or gradient-type elements.
inline std::int64_t compute_bytes(const Precision& p, std::int64_t elements) {
  return elements * dtype_size(p.compute);
}
inline std::int64_t reduction_bytes(const Precision& p, std::int64_t elements) {
  return elements * dtype_size(p.reduction);
}
inline std::int64_t gradient_bytes(const Precision& p, std::int64_t elements) {
  return elements * dtype_size(p.gradient);
}
inline OperatorWork work_of(double flops, std::int64_t bytes) {
  return OperatorWork{FlopCount(flops), Bytes(bytes)};
}

/// For operators that allocate nothing.
inline Bytes no_workspace(const Operator&, const OperatorShapes&, Phase, const Precision&, int) {
  return Bytes(0);
}
inline std::vector<ParameterSpec> no_parameters(const Operator&) { return {}; }

}  // namespace bayplan
