#include "planner/core/operator.h"

#include <array>

#include "planner/core/check.h"
#include "planner/core/operators/families.h"

namespace bayplan {
namespace {

/// In the order of OperatorKind.
std::array<OperatorSpec, kOperatorKindCount> build_table() {
  return {embedding_spec(),    linear_spec(),    layer_norm_spec(),  rms_norm_spec(),
          rope_spec(),         attention_spec(), gelu_spec(),        swiglu_spec(),
          residual_add_spec(), dropout_spec(),   lm_head_loss_spec()};
}

}  // namespace

const OperatorSpec& operator_spec(OperatorKind kind) {
  static const std::array<OperatorSpec, kOperatorKindCount> table = build_table();
  const OperatorSpec& spec = table.at(static_cast<std::size_t>(kind));
  BAYPLAN_CHECK(spec.kind == kind, "operator table out of order");
  return spec;
}

}  // namespace bayplan
