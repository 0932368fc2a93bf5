// lm_head + cross-entropy: logits = x · weightᵀ, loss = sum over tokens of lse - logit of label.
// The gradient overwrites the logits in backward_input; backward_weight reads it there.
// Legend: n tokens (b·s), h hidden, V vocab.
#include "planner/core/operators/families.h"

namespace bayplan {
namespace {

void infer(const Operator& op, std::span<const TensorShape> inputs, BatchShape batch,
           std::vector<TensorShape>& outputs, std::vector<TensorShape>& statistics) {
  const OperatorAttributes& a = op.attributes;
  BAYPLAN_CHECK(inputs[0].shape.width() == a.in_features, op.name);
  BAYPLAN_CHECK(inputs[1].element == ElementClass::kIndex, op.name);
  outputs = {TensorShape{{1}, ElementClass::kLoss}};
  statistics = {
      TensorShape{{batch.micro_batch, batch.seq, a.vocab}, ElementClass::kCompute},
      TensorShape{{batch.micro_batch, batch.seq}, ElementClass::kReduction},
  };
}

std::vector<ParameterSpec> parameters(const Operator& op) {
  const OperatorAttributes& a = op.attributes;
  return {ParameterSpec{
      "weight", {a.vocab, a.in_features}, true, ParameterSpec::Init::kNormal, a.init_std}};
}

/// Beside the products, an exponential (ten operations) and about four more per logit.
OperatorWork work(const Operator& op, const OperatorShapes& shapes, Phase phase,
                  const Precision& p) {
  const std::int64_t n = shapes.inputs[0].shape.rows();
  const std::int64_t h = op.attributes.in_features, v = op.attributes.vocab;
  const double logits = static_cast<double>(n * v);
  const double product = 2.0 * logits * static_cast<double>(h);
  switch (phase) {
    case Phase::kForward:  // logits written, then read for the sum
      return work_of(product + 14.0 * logits,
                     compute_bytes(p, n * h + v * h + 2 * n * v) + reduction_bytes(p, n) + 4 * n);
    case Phase::kBackwardInput:  // logits read, overwritten, then read by the product
      return work_of(product + 14.0 * logits,
                     compute_bytes(p, n * h + v * h + 3 * n * v) + reduction_bytes(p, n) + 4 * n);
    case Phase::kBackwardWeight:
      return work_of(product, compute_bytes(p, n * h + n * v) + 2 * gradient_bytes(p, v * h));
  }
  return {};
}

Bytes workspace(const Operator& op, const OperatorShapes& shapes, Phase phase, const Precision& p,
                int threads) {
  const std::int64_t n = shapes.inputs[0].shape.rows();
  const std::int64_t h = op.attributes.in_features, v = op.attributes.vocab;
  switch (phase) {
    case Phase::kForward:  // and one loss per row
      return Bytes(temporary(reduction_bytes(p, n)) + product_workspace(p, n, v, h, threads));
    case Phase::kBackwardInput:
      return Bytes(product_workspace(p, n, h, v, threads));
    case Phase::kBackwardWeight: {
      const std::int64_t rounded = p.compute == p.gradient ? 0 : temporary(compute_bytes(p, v * h));
      return Bytes(rounded + product_workspace(p, v, h, n, threads));
    }
  }
  return Bytes(0);
}

}  // namespace

OperatorSpec lm_head_loss_spec() {
  OperatorSpec spec;
  spec.kind = OperatorKind::kLmHeadLoss;
  spec.name = "lm_head_loss";
  spec.backward_input = {.inputs = 0b10, .statistics = 0b11, .parameters = 0b1};
  spec.backward_weight = {.inputs = 0b1, .statistics = 0b1};
  spec.differentiable_inputs = 0b1;
  spec.backward_updates_statistics = true;
  spec.infer = infer;
  spec.parameters = parameters;
  spec.work = work;
  spec.workspace = workspace;
  return spec;
}

}  // namespace bayplan
