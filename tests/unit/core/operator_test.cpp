#include "planner/core/operator.h"

#include <gtest/gtest.h>

#include "planner/core/operators/tiling.h"

namespace bayplan {
namespace {

struct Call {
  Operator op;
  std::vector<TensorShape> inputs, outputs, statistics;
  OperatorShapes shapes() const { return {inputs, outputs, statistics}; }
  double flops(Phase phase) const {
    return operator_spec(op.kind).work(op, shapes(), phase, precision_of(DType::kFp32)).flops.value;
  }
  std::int64_t bytes(Phase phase, DType compute = DType::kFp32) const {
    return operator_spec(op.kind).work(op, shapes(), phase, precision_of(compute)).bytes.value;
  }
  std::int64_t workspace(Phase phase, DType compute, int threads) const {
    return operator_spec(op.kind)
        .workspace(op, shapes(), phase, precision_of(compute), threads)
        .value;
  }
};

Call make_call(OperatorKind kind, OperatorAttributes attributes, std::vector<TensorShape> inputs,
               BatchShape batch) {
  Call call;
  call.op.kind = kind;
  call.op.attributes = attributes;
  call.inputs = std::move(inputs);
  operator_spec(kind).infer(call.op, call.inputs, batch, call.outputs, call.statistics);
  return call;
}

Call linear() {
  OperatorAttributes a;
  a.in_features = 256, a.out_features = 768;
  return make_call(OperatorKind::kLinear, a, {{{4, 256, 256}, ElementClass::kCompute}}, {4, 256});
}

TEST(OperatorTable, EveryKindHasACompleteEntry) {
  for (int k = 0; k < kOperatorKindCount; ++k) {
    const OperatorSpec& spec = operator_spec(static_cast<OperatorKind>(k));
    EXPECT_FALSE(spec.name.empty());
    EXPECT_NE(spec.infer, nullptr) << spec.name;
    EXPECT_NE(spec.parameters, nullptr) << spec.name;
    EXPECT_NE(spec.work, nullptr) << spec.name;
    EXPECT_NE(spec.workspace, nullptr) << spec.name;
  }
}

// 1024 rows: 2 · 1024 · 256 · 768 = 402,653,184 in each of the three products.
TEST(OperatorTable, LinearWorkIsThreeEqualProducts) {
  const Call call = linear();
  for (const Phase phase : {Phase::kForward, Phase::kBackwardInput, Phase::kBackwardWeight}) {
    EXPECT_EQ(call.flops(phase), 402'653'184.0);
  }
  // x 262,144 + weight 196,608 + y 786,432 elements of 4 bytes.
  EXPECT_EQ(call.bytes(Phase::kForward), 4 * (262'144 + 196'608 + 786'432));
  // dy and x are read in bf16; the gradient is read and written in fp32.
  EXPECT_EQ(call.bytes(Phase::kBackwardWeight, DType::kBf16),
            2 * (786'432 + 262'144) + 2 * 4 * 196'608);
}

// Causal: 4 heads · 2 samples · 8 · 9 / 2 = 288 pairs; forward 2 products, backward 5, of
// 2 · 16 operations a pair, and 5 for the softmax.
TEST(OperatorTable, AttentionCountsCausalPairs) {
  OperatorAttributes a;
  a.heads = 4, a.kv_heads = 2, a.head_dim = 16;
  const Call call =
      make_call(OperatorKind::kAttention, a, {{{2, 8, 8 * 16}, ElementClass::kCompute}}, {2, 8});
  EXPECT_EQ(call.flops(Phase::kForward), 288.0 * (4 * 16 + 5));
  EXPECT_EQ(call.flops(Phase::kBackwardInput), 288.0 * (10 * 16 + 5));
  EXPECT_EQ(call.flops(Phase::kBackwardWeight), 0.0);
  EXPECT_EQ(call.outputs[0].shape, (Shape{2, 8, 64}));
  EXPECT_EQ(call.statistics[0].shape, (Shape{2, 4, 8}));
}

TEST(OperatorTable, LossIsOneFp64Sum) {
  OperatorAttributes a;
  a.in_features = 64, a.out_features = a.vocab = 97;
  const Call call =
      make_call(OperatorKind::kLmHeadLoss, a,
                {{{2, 8, 64}, ElementClass::kCompute}, {{2, 8}, ElementClass::kIndex}}, {2, 8});
  EXPECT_EQ(call.outputs[0].shape, (Shape{1}));
  EXPECT_EQ(element_dtype(call.outputs[0].element, precision_of(DType::kBf16)), DType::kFp64);
  EXPECT_EQ(call.statistics[0].shape, (Shape{2, 8, 112}));  // rows of logits in steps of 16
}

// fp32 products allocate nothing. In bf16 each of two threads may repack a tile's operands.
TEST(OperatorTable, WorkspaceGrowsWithThreadsOnlyWhereTilesRunAtOnce) {
  const Call call = linear();
  EXPECT_EQ(call.workspace(Phase::kForward, DType::kFp32, 2), 0);
  const std::int64_t one = call.workspace(Phase::kForward, DType::kBf16, 1);
  EXPECT_GT(one, 0);
  EXPECT_EQ(call.workspace(Phase::kForward, DType::kBf16, 2), 2 * one);
  // 1024 rows are four tiles: no more than four run at once.
  EXPECT_EQ(call.workspace(Phase::kForward, DType::kBf16, 64), 4 * one);
}

TEST(OperatorTable, BackwardWeightAsksForNothingWithoutParameters) {
  for (const OperatorKind kind :
       {OperatorKind::kRope, OperatorKind::kAttention, OperatorKind::kGelu, OperatorKind::kSwiglu,
        OperatorKind::kResidualAdd, OperatorKind::kDropout}) {
    const Needs& needs = operator_spec(kind).backward_weight;
    EXPECT_EQ(needs.inputs | needs.outputs | needs.statistics | needs.parameters, 0);
    EXPECT_FALSE(needs.output_gradient);
    EXPECT_TRUE(operator_spec(kind).parameters(Operator{kind, "", {}, {}, {}, {}, {}}).empty());
  }
}

}  // namespace
}  // namespace bayplan
