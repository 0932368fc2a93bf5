// lm_head + cross-entropy: logits = x · weightᵀ, loss = sum over tokens of lse - logit of label.
// A forward that keeps for backward turns each row of logits into its gradient, softmax minus
// one-hot, while the row is in cache: the loss is a sum, so the gradient needs nothing from later.
// Both backward phases are then plain products.
// Rows of logits are padded to whole cache lines: with an odd vocabulary the product that writes
// them runs at half speed otherwise. Padding is written as zero and never read.
// Legend: n tokens (b·s), h hidden, V vocab.
#include "planner/core/operators/families.h"

namespace bayplan {
namespace {

/// Elements; 64 bytes in fp32.
constexpr std::int64_t kLogitsAlignment = 16;

void infer_lm_head_loss(const Operator& op, std::span<const TensorShape> inputs, BatchShape batch,
                        std::vector<TensorShape>& outputs, std::vector<TensorShape>& statistics) {
  const OperatorAttributes& a = op.attributes;
  BAYPLAN_CHECK(inputs[0].shape.width() == a.in_features, op.name);
  BAYPLAN_CHECK(inputs[1].element == ElementClass::kIndex, op.name);
  outputs = {TensorShape{{1}, ElementClass::kLoss}};
  statistics = {
      TensorShape{{batch.micro_batch, batch.seq, round_up(a.vocab, kLogitsAlignment)},
                  ElementClass::kCompute},
      TensorShape{{batch.micro_batch, batch.seq}, ElementClass::kReduction},
  };
}

std::vector<ParameterSpec> parameters_lm_head_loss(const Operator& op) {
  const OperatorAttributes& a = op.attributes;
  return {ParameterSpec{
      "weight", {a.vocab, a.in_features}, true, ParameterSpec::Init::kNormal, a.init_std}};
}

/// Forward takes two exponentials (ten operations each) and about eight more per logit.
OperatorWork work_lm_head_loss(const Operator& op, const OperatorShapes& shapes, Phase phase,
                               const Precision& p) {
  const std::int64_t n = shapes.inputs[0].shape.rows();
  const std::int64_t h = op.attributes.in_features, v = op.attributes.vocab;
  const double logits = static_cast<double>(n * v);
  const double product = 2.0 * logits * static_cast<double>(h);
  switch (phase) {
    case Phase::kForward:  // logits written, then read and overwritten by their gradient
      return work_of(product + 28.0 * logits,
                     compute_bytes(p, n * h + v * h + 3 * n * v) + reduction_bytes(p, n) + 4 * n);
    case Phase::kBackwardInput:
      return work_of(product, compute_bytes(p, n * h + v * h + n * v));
    case Phase::kBackwardWeight:
      return work_of(product, compute_bytes(p, n * h + n * v) + 2 * gradient_bytes(p, v * h));
  }
  return {};
}

Bytes workspace_lm_head_loss(const Operator& op, const OperatorShapes& shapes, Phase phase,
                             const Precision& p, int threads) {
  const std::int64_t n = shapes.inputs[0].shape.rows();
  const std::int64_t h = op.attributes.in_features, v = op.attributes.vocab;
  switch (phase) {
    case Phase::kForward:  // and one loss per row
      return Bytes(temporary(reduction_bytes(p, n)) +
                   product_workspace(p.compute, n, v, h, threads, false));
    case Phase::kBackwardInput:
      return Bytes(product_workspace(p.compute, n, h, v, threads, false));
    case Phase::kBackwardWeight:
      return Bytes(product_workspace(p.compute, v, h, n, threads, true));
  }
  return Bytes(0);
}

}  // namespace

OperatorSpec lm_head_loss_spec() {
  OperatorSpec spec;
  spec.kind = OperatorKind::kLmHeadLoss;
  spec.name = "lm_head_loss";
  spec.backward_input = {.statistics = 0b1, .parameters = 0b1};
  spec.backward_weight = {.inputs = 0b1, .statistics = 0b1};
  spec.differentiable_inputs = 0b1;
  spec.infer = infer_lm_head_loss;
  spec.parameters = parameters_lm_head_loss;
  spec.work = work_lm_head_loss;
  spec.workspace = workspace_lm_head_loss;
  return spec;
}

}  // namespace bayplan
