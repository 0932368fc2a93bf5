#include "planner/program/unit_layout.h"

#include <gtest/gtest.h>

#include "tests/unit/program/tiny_plans.h"

namespace bayplan {
namespace {

// Legend: T tokens of the micro-batch, h hidden, a heads. Sizes are chosen so that all tensors but
// the norms' statistics are multiples of the alignment: T·a·4 = 256.
constexpr std::int64_t kT = 16, kH = 64, kA = 4, kFloat = 4;

UnitLayout block_layout() {
  const ModelGraph graph = build_model(test::tiny_architecture(1, false), false);
  const auto shapes = infer_class_shapes(graph, {1, kT});
  return lay_out_unit(graph.classes[1], shapes[1], precision_of(DType::kFp32), 1);
}

TEST(UnitLayout, BlockSavesWhatEachBackwardPhaseNeeds) {
  const UnitLayout layout = block_layout();
  // backward_input alone reads qkv (3h), the input of gelu (4h) and the log-sum-exp (a).
  EXPECT_EQ(layout.saved_for_input_bytes, kT * (3 * kH + 4 * kH + kA) * kFloat);
  // backward_weight reads the inputs of qkv, out, up (h each) and down (4h), the input of the
  // second norm (h), and mean and rstd of both norms, each padded to the alignment.
  EXPECT_EQ(layout.saved_for_weight_bytes,
            kT * (3 * kH + 4 * kH + kH) * kFloat + 4 * kTensorAlignment);
}

TEST(UnitLayout, FusedBackwardAddsToTheResidualGradientInPlace) {
  const ModelGraph graph = build_model(test::tiny_architecture(1, false), false);
  const UnitLayout layout = block_layout();
  std::vector<GradientSlot> norms;
  for (std::size_t o = 0; o < graph.classes[1].operators.size(); ++o) {
    if (graph.classes[1].operators[o].kind == OperatorKind::kLayerNorm) {
      norms.push_back(layout.fused.operators[o].inputs[0]);
    }
  }
  ASSERT_EQ(norms.size(), 2u);
  EXPECT_EQ(norms[1].action, GradientSlot::Action::kAdd);
  EXPECT_EQ(norms[1].target.region, Region::kBoundaryOutputGradient);
  EXPECT_EQ(norms[1].target, norms[1].residual);
  // The first norm ends the unit: its sum is the gradient of the unit's input.
  EXPECT_EQ(norms[0].target.region, Region::kBoundaryInputGradient);
  EXPECT_EQ(norms[0].residual.region, Region::kBoundaryOutputGradient);
  EXPECT_EQ(layout.fused.stash_bytes, 0);
}

TEST(UnitLayout, SplitBackwardStashesTheOutputGradientsThatWeightsNeed) {
  const UnitLayout layout = block_layout();
  // Gradients of qkv (3h), up's output (4h), both norms' outputs (2h) and the residual stream
  // between attention and mlp (h), which is out's output gradient. down's is the unit's own
  // output gradient, so it is not stashed.
  EXPECT_EQ(layout.split.stash_bytes, kT * 10 * kH * kFloat);
  for (const OperatorGradients& op : layout.split.operators) {
    for (const GradientSlot& slot : op.inputs) {
      EXPECT_NE(slot.target.region, Region::kBoundaryOutputGradient)
          << "would destroy what backward_weight reads";
    }
  }
}

TEST(UnitLayout, ScratchOfTensorsAliveTogetherDoesNotOverlap) {
  const ModelGraph graph = build_model(test::tiny_architecture(1, false), true);
  const auto shapes = infer_class_shapes(graph, {1, kT});
  const Precision precision = precision_of(DType::kFp32);
  const UnitLayout layout = lay_out_unit(graph.classes[1], shapes[1], precision, 1);
  const UnitClass& unit = graph.classes[1];
  auto bytes = [&](std::int32_t t) {
    const TensorShape& s = shapes[1][static_cast<std::size_t>(t)];
    return s.shape.count() * dtype_size(element_dtype(s.element, precision));
  };
  int checked = 0;
  for (std::size_t o = 0; o < unit.operators.size(); ++o) {
    // An operator's scratch inputs and outputs are alive while it runs.
    std::vector<std::int32_t> alive = unit.operators[o].inputs;
    alive.insert(alive.end(), unit.operators[o].outputs.begin(), unit.operators[o].outputs.end());
    for (std::int32_t x : alive) {
      for (std::int32_t y : alive) {
        const Placement& a = layout.values[static_cast<std::size_t>(x)];
        const Placement& b = layout.values[static_cast<std::size_t>(y)];
        if (x == y || a.region != b.region || a.region == Region::kBoundaryInput) continue;
        EXPECT_TRUE(a.offset + bytes(x) <= b.offset || b.offset + bytes(y) <= a.offset)
            << unit.operators[o].name << " tensors " << x << " and " << y;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 0);
  EXPECT_GT(layout.forward_scratch_bytes, 0);
}

}  // namespace
}  // namespace bayplan
