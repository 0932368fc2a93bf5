// embedding: x = weight[id] (+ positions[position]).   Legend: n tokens (b·s), h width.
#include "planner/core/operators/families.h"

namespace bayplan {
namespace {

void infer_embedding(const Operator& op, std::span<const TensorShape> inputs, BatchShape batch,
                     std::vector<TensorShape>& outputs, std::vector<TensorShape>& statistics) {
  const OperatorAttributes& a = op.attributes;
  BAYPLAN_CHECK(inputs[0].element == ElementClass::kIndex, op.name);
  BAYPLAN_CHECK(a.positions == 0 || batch.seq <= a.positions,
                "sequence longer than the learned positions");
  outputs = {TensorShape{{batch.micro_batch, batch.seq, a.out_features}, ElementClass::kCompute}};
  statistics.clear();
}

std::vector<ParameterSpec> parameters_embedding(const Operator& op) {
  const OperatorAttributes& a = op.attributes;
  std::vector<ParameterSpec> specs = {ParameterSpec{
      "weight", {a.vocab, a.out_features}, true, ParameterSpec::Init::kNormal, a.init_std}};
  if (a.positions > 0) {
    specs.push_back({"positions",
                     {a.positions, a.out_features},
                     true,
                     ParameterSpec::Init::kNormal,
                     a.init_std});
  }
  return specs;
}

OperatorWork work_embedding(const Operator& op, const OperatorShapes& shapes, Phase phase,
                            const Precision& p) {
  const std::int64_t n = shapes.outputs[0].shape.rows(), h = op.attributes.out_features;
  const bool learned = op.attributes.positions > 0;
  const std::int64_t s = shapes.outputs[0].shape[1];
  switch (phase) {
    case Phase::kForward:
      return work_of(learned ? static_cast<double>(n * h) : 0.0,
                     4 * n + compute_bytes(p, 2 * n * h + (learned ? s * h : 0)));
    case Phase::kBackwardInput:
      return {};
    case Phase::kBackwardWeight:
      return work_of(
          static_cast<double>((learned ? 2 : 1) * n * h),
          4 * n + compute_bytes(p, n * h) + 2 * gradient_bytes(p, n * h + (learned ? s * h : 0)));
  }
  return {};
}

}  // namespace

OperatorSpec embedding_spec() {
  OperatorSpec spec;
  spec.kind = OperatorKind::kEmbedding;
  spec.name = "embedding";
  spec.backward_weight = {.inputs = 0b1, .output_gradient = true};
  spec.infer = infer_embedding;
  spec.parameters = parameters_embedding;
  spec.work = work_embedding;
  spec.workspace = no_workspace;
  return spec;
}

}  // namespace bayplan
