// rope and causal attention on packed rows [q | k | v].
// Legend: b samples, s sequence, a heads, k key/value heads, d head_dim.
#include <algorithm>

#include "planner/core/operators/families.h"

namespace bayplan {
namespace {

std::int64_t packed_width(const OperatorAttributes& a) {
  return (a.heads + 2 * a.kv_heads) * a.head_dim;
}

void infer_rope(const Operator& op, std::span<const TensorShape> inputs, BatchShape,
                std::vector<TensorShape>& outputs, std::vector<TensorShape>& statistics) {
  BAYPLAN_CHECK(inputs[0].shape.width() == packed_width(op.attributes), op.name);
  outputs = {inputs[0]};
  statistics.clear();
}

/// Six operations rotate a pair; the table is 2 · s · d/2 sines and cosines.
OperatorWork work_rope(const Operator& op, const OperatorShapes& shapes, Phase phase,
                       const Precision& p) {
  if (phase == Phase::kBackwardWeight) return {};
  const OperatorAttributes& a = op.attributes;
  const Shape& x = shapes.inputs[0].shape;
  const std::int64_t rotated = x.rows() * (a.heads + a.kv_heads) * a.head_dim;
  return work_of(3.0 * static_cast<double>(rotated),
                 compute_bytes(p, 2 * x.count()) + reduction_bytes(p, x[1] * a.head_dim));
}

/// The table of sines and cosines, rebuilt in every call.
Bytes workspace_rope(const Operator& op, const OperatorShapes& shapes, Phase phase,
                     const Precision& p, int) {
  if (phase == Phase::kBackwardWeight) return Bytes(0);
  const std::int64_t half =
      reduction_bytes(p, shapes.inputs[0].shape[1] * op.attributes.head_dim / 2);
  return Bytes(2 * temporary(half));
}

void infer_attention(const Operator& op, std::span<const TensorShape> inputs, BatchShape batch,
                     std::vector<TensorShape>& outputs, std::vector<TensorShape>& statistics) {
  const OperatorAttributes& a = op.attributes;
  BAYPLAN_CHECK(inputs[0].shape.width() == packed_width(a), op.name);
  BAYPLAN_CHECK(a.kv_heads > 0 && a.heads % a.kv_heads == 0, op.name);
  outputs = {
      TensorShape{{batch.micro_batch, batch.seq, a.heads * a.head_dim}, ElementClass::kCompute}};
  statistics = {TensorShape{{batch.micro_batch, a.heads, batch.seq}, ElementClass::kReduction}};
}

/// Forward is two products over the s(s+1)/2 causal pairs of a head, backward_input five (the
/// scores again, dP, dV, dQ, dK); about five operations per pair for the softmax in each.
OperatorWork work_attention(const Operator& op, const OperatorShapes& shapes, Phase phase,
                            const Precision& p) {
  if (phase == Phase::kBackwardWeight) return {};
  const OperatorAttributes& a = op.attributes;
  const Shape& x = shapes.inputs[0].shape;
  const std::int64_t s = x[1];
  const double pairs = static_cast<double>(x[0] * a.heads) * static_cast<double>(s * (s + 1) / 2);
  const std::int64_t qkv = compute_bytes(p, x.count());
  const std::int64_t o = compute_bytes(p, shapes.outputs[0].shape.count());
  const std::int64_t lse = reduction_bytes(p, x[0] * a.heads * s);
  const double d = static_cast<double>(a.head_dim);
  return phase == Phase::kForward ? work_of(pairs * (4.0 * d + 5.0), qkv + o + lse)
                                  : work_of(pairs * (10.0 * d + 5.0), 2 * qkv + 2 * o + lse);
}

/// Per thread: a block of scores and, backward, of their gradients. bf16 is computed in fp32, on
/// copies of one head's rows: q, k, v, o forward; q, k, v, do, dq, dk, dv backward.
Bytes workspace_attention(const Operator& op, const OperatorShapes& shapes, Phase phase,
                          const Precision& p, int threads) {
  if (phase == Phase::kBackwardWeight) return Bytes(0);
  const OperatorAttributes& a = op.attributes;
  const Shape& x = shapes.inputs[0].shape;
  const std::int64_t s = x[1];
  const bool backward = phase == Phase::kBackwardInput;
  const std::int64_t scores =
      temporary(reduction_bytes(p, std::min(s, kAttentionRowBlock) * s)) * (backward ? 2 : 1);
  const std::int64_t row_sums = backward ? temporary(reduction_bytes(p, s)) : 0;
  const std::int64_t copies =
      p.compute == p.reduction ? 0
                               : (backward ? 7 : 4) * temporary(reduction_bytes(p, s * a.head_dim));
  return Bytes(std::min<std::int64_t>(threads, x[0] * a.kv_heads) * (scores + row_sums + copies));
}

}  // namespace

OperatorSpec rope_spec() {
  OperatorSpec spec;
  spec.kind = OperatorKind::kRope;
  spec.name = "rope";
  spec.backward_input = {.output_gradient = true};
  spec.differentiable_inputs = 0b1;
  spec.infer = infer_rope;
  spec.parameters = no_parameters;
  spec.work = work_rope;
  spec.workspace = workspace_rope;
  return spec;
}

OperatorSpec attention_spec() {
  OperatorSpec spec;
  spec.kind = OperatorKind::kAttention;
  spec.name = "attention";
  spec.backward_input = {.inputs = 0b1, .outputs = 0b1, .statistics = 0b1, .output_gradient = true};
  spec.differentiable_inputs = 0b1;
  spec.infer = infer_attention;
  spec.parameters = no_parameters;
  spec.work = work_attention;
  spec.workspace = workspace_attention;
  return spec;
}

}  // namespace bayplan
