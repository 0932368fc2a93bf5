// linear: y = x · weightᵀ + bias.   Legend: n rows (b·s), i in_features, o out_features.
#include "planner/core/operators/families.h"

namespace bayplan {
namespace {

void infer_linear(const Operator& op, std::span<const TensorShape> inputs, BatchShape,
                  std::vector<TensorShape>& outputs, std::vector<TensorShape>& statistics) {
  BAYPLAN_CHECK(inputs[0].shape.width() == op.attributes.in_features, op.name);
  Shape y = inputs[0].shape;
  y.dims[static_cast<std::size_t>(y.rank - 1)] = op.attributes.out_features;
  outputs = {TensorShape{y, ElementClass::kCompute}};
  statistics.clear();
}

std::vector<ParameterSpec> parameters_linear(const Operator& op) {
  const OperatorAttributes& a = op.attributes;
  std::vector<ParameterSpec> specs = {ParameterSpec{
      "weight", {a.out_features, a.in_features}, true, ParameterSpec::Init::kNormal, a.init_std}};
  if (a.bias) {
    specs.push_back({"bias", {a.out_features}, false, ParameterSpec::Init::kZero, 0.0});
  }
  return specs;
}

OperatorWork work_linear(const Operator& op, const OperatorShapes& shapes, Phase phase,
                         const Precision& p) {
  const std::int64_t i = op.attributes.in_features, o = op.attributes.out_features;
  const std::int64_t n = shapes.inputs[0].shape.rows();
  const double product = 2.0 * static_cast<double>(n * i) * static_cast<double>(o);
  const double bias = op.attributes.bias ? static_cast<double>(n * o) : 0.0;
  switch (phase) {
    case Phase::kForward:
      return work_of(product + bias, compute_bytes(p, n * i + o * i + n * o));
    case Phase::kBackwardInput:
      return work_of(product, compute_bytes(p, n * o + o * i + n * i));
    case Phase::kBackwardWeight:
      return work_of(product + bias,
                     compute_bytes(p, n * o + n * i) + 2 * gradient_bytes(p, o * i));
  }
  return {};
}

Bytes workspace_linear(const Operator& op, const OperatorShapes& shapes, Phase phase,
                       const Precision& p, int threads) {
  const std::int64_t i = op.attributes.in_features, o = op.attributes.out_features;
  const std::int64_t n = shapes.inputs[0].shape.rows();
  switch (phase) {
    case Phase::kForward:
      return Bytes(product_workspace(p.compute, n, o, i, threads, false));
    case Phase::kBackwardInput:
      return Bytes(product_workspace(p.compute, n, i, o, threads, false));
    case Phase::kBackwardWeight:
      return Bytes(product_workspace(p.compute, o, i, n, threads, true));
  }
  return Bytes(0);
}

}  // namespace

OperatorSpec linear_spec() {
  OperatorSpec spec;
  spec.kind = OperatorKind::kLinear;
  spec.name = "linear";
  spec.backward_input = {.parameters = 0b1, .output_gradient = true};
  spec.backward_weight = {.inputs = 0b1, .output_gradient = true};
  spec.differentiable_inputs = 0b1;
  spec.infer = infer_linear;
  spec.parameters = parameters_linear;
  spec.work = work_linear;
  spec.workspace = workspace_linear;
  return spec;
}

}  // namespace bayplan
