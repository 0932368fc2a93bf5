// layer_norm and rms_norm over the last dim.   Legend: n rows (b·s), h width.
#include "planner/core/operators/families.h"

namespace bayplan {
namespace {

TensorShape row_statistic(const TensorShape& x) {
  Shape shape = x.shape;
  shape.dims[static_cast<std::size_t>(--shape.rank)] = 0;
  return TensorShape{shape, ElementClass::kReduction};
}

template <int kStatistics>
void infer_norm(const Operator& op, std::span<const TensorShape> inputs, BatchShape,
                std::vector<TensorShape>& outputs, std::vector<TensorShape>& statistics) {
  BAYPLAN_CHECK(inputs[0].shape.width() == op.attributes.out_features, op.name);
  outputs = {inputs[0]};
  statistics.assign(kStatistics, row_statistic(inputs[0]));
}

std::vector<ParameterSpec> parameters_norm(const Operator& op) {
  const Shape h{op.attributes.out_features};
  std::vector<ParameterSpec> specs = {
      ParameterSpec{"weight", h, false, ParameterSpec::Init::kOne, 0.0}};
  if (op.attributes.bias) {
    specs.push_back({"bias", h, false, ParameterSpec::Init::kZero, 0.0});
  }
  return specs;
}

/// Operations per element, counted in the formulas of kernels/norm.h.
///   layer_norm: forward 2 sums (1 + 3) + normalise 2 + affine 2; backward_input 2 sums (1 + 3) +
///   combine 5; backward_weight normalise 2 + multiply-add 2 + add 1
///   rms_norm: forward sum 2 + 2; backward_input sum 3 + combine 4; backward_weight 3
template <int kStatistics>
OperatorWork work_norm(const Operator& op, const OperatorShapes& shapes, Phase phase,
                       const Precision& p) {
  const std::int64_t n = shapes.inputs[0].shape.rows(), h = op.attributes.out_features;
  const std::int64_t parameters_bytes = compute_bytes(p, h * (op.attributes.bias ? 2 : 1));
  const std::int64_t statistics_bytes = reduction_bytes(p, kStatistics * n);
  const double elements = static_cast<double>(n * h);
  const bool layer = kStatistics == 2;
  switch (phase) {
    case Phase::kForward:
      return work_of((layer ? 8.0 : 4.0) * elements,
                     compute_bytes(p, 2 * n * h) + parameters_bytes + statistics_bytes);
    case Phase::kBackwardInput:
      return work_of((layer ? 9.0 : 7.0) * elements,
                     compute_bytes(p, 3 * n * h + h) + statistics_bytes);
    case Phase::kBackwardWeight:
      return work_of((layer ? 5.0 : 3.0) * elements,
                     compute_bytes(p, 2 * n * h) + statistics_bytes +
                         2 * gradient_bytes(p, h * (op.attributes.bias ? 2 : 1)));
  }
  return {};
}

template <int kStatistics>
OperatorSpec norm_spec(OperatorKind kind, std::string_view name) {
  constexpr std::uint8_t all = (1u << kStatistics) - 1;
  OperatorSpec spec;
  spec.kind = kind;
  spec.name = name;
  spec.backward_input = {
      .inputs = 0b1, .statistics = all, .parameters = 0b1, .output_gradient = true};
  spec.backward_weight = {.inputs = 0b1, .statistics = all, .output_gradient = true};
  spec.differentiable_inputs = 0b1;
  spec.adds_residual_gradient = true;
  spec.infer = infer_norm<kStatistics>;
  spec.parameters = parameters_norm;
  spec.work = work_norm<kStatistics>;
  spec.workspace = no_workspace;
  return spec;
}

}  // namespace

OperatorSpec layer_norm_spec() { return norm_spec<2>(OperatorKind::kLayerNorm, "layer_norm"); }
OperatorSpec rms_norm_spec() { return norm_spec<1>(OperatorKind::kRmsNorm, "rms_norm"); }

}  // namespace bayplan
