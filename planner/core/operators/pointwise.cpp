// gelu, swiglu, residual_add and dropout: element by element, no parameters, no temporaries.
#include "planner/core/operators/families.h"

namespace bayplan {
namespace {

void infer_same(const Operator& op, std::span<const TensorShape> inputs, BatchShape,
                std::vector<TensorShape>& outputs, std::vector<TensorShape>& statistics) {
  for (const TensorShape& x : inputs) BAYPLAN_CHECK(x.shape == inputs[0].shape, op.name);
  outputs = {inputs[0]};
  statistics.clear();
}

void infer_half(const Operator& op, std::span<const TensorShape> inputs, BatchShape,
                std::vector<TensorShape>& outputs, std::vector<TensorShape>& statistics) {
  Shape y = inputs[0].shape;
  BAYPLAN_CHECK(y.width() % 2 == 0, op.name);
  y.dims[static_cast<std::size_t>(y.rank - 1)] /= 2;
  outputs = {TensorShape{y, inputs[0].element}};
  statistics.clear();
}

/// Operations per output element and tensor-sized passes over memory in each phase. An
/// exponential counts ten operations.
struct PointwiseCost {
  double forward_flops = 0.0;
  double backward_flops = 0.0;
  std::int64_t forward_outputs = 0;  // output-sized reads and writes
  std::int64_t backward_outputs = 0;
};

constexpr PointwiseCost kGeluCost{18.0, 28.0, 2, 3};
constexpr PointwiseCost kSwigluCost{14.0, 20.0, 3, 5};
constexpr PointwiseCost kResidualAddCost{1.0, 0.0, 3, 0};
constexpr PointwiseCost kDropoutCost{20.0, 20.0, 2, 2};  // Philox: about 80 operations per 4 draws

template <const PointwiseCost& kCost>
OperatorWork work_pointwise(const Operator&, const OperatorShapes& shapes, Phase phase,
                            const Precision& p) {
  const std::int64_t n = shapes.outputs[0].shape.count();
  switch (phase) {
    case Phase::kForward:
      return work_of(kCost.forward_flops * static_cast<double>(n),
                     compute_bytes(p, kCost.forward_outputs * n));
    case Phase::kBackwardInput:
      return work_of(kCost.backward_flops * static_cast<double>(n),
                     compute_bytes(p, kCost.backward_outputs * n));
    case Phase::kBackwardWeight:
      return {};
  }
  return {};
}

template <const PointwiseCost& kCost>
OperatorSpec pointwise_spec(OperatorKind kind, std::string_view name) {
  OperatorSpec spec;
  spec.kind = kind;
  spec.name = name;
  spec.backward_input = {.output_gradient = true};
  spec.differentiable_inputs = 0b1;
  spec.infer = infer_same;
  spec.parameters = no_parameters;
  spec.work = work_pointwise<kCost>;
  spec.workspace = no_workspace;
  return spec;
}

}  // namespace

OperatorSpec gelu_spec() {
  OperatorSpec spec = pointwise_spec<kGeluCost>(OperatorKind::kGelu, "gelu");
  spec.backward_input.inputs = 0b1;
  return spec;
}

OperatorSpec swiglu_spec() {
  OperatorSpec spec = pointwise_spec<kSwigluCost>(OperatorKind::kSwiglu, "swiglu");
  spec.backward_input.inputs = 0b1;
  spec.infer = infer_half;
  return spec;
}

OperatorSpec residual_add_spec() {
  OperatorSpec spec = pointwise_spec<kResidualAddCost>(OperatorKind::kResidualAdd, "residual_add");
  spec.differentiable_inputs = 0b11;
  spec.gradient_is_identity = true;
  return spec;
}

OperatorSpec dropout_spec() {
  return pointwise_spec<kDropoutCost>(OperatorKind::kDropout, "dropout");
}

}  // namespace bayplan
