#include "models/build_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace bayplan {
namespace {

Architecture gpt2() {
  Architecture a;
  a.name = a.family = "gpt2";
  a.layers = 12, a.hidden = 768, a.heads = a.kv_heads = 12, a.head_dim = 64, a.ffn = 3072;
  a.vocab = 50257, a.max_seq = 1024;
  return a;
}

Architecture llama_3_8b() {
  Architecture a;
  a.name = "llama-3-8b", a.family = "llama";
  a.layers = 32, a.hidden = 4096, a.heads = 32, a.kv_heads = 8, a.head_dim = 128, a.ffn = 14336;
  a.vocab = 128256, a.max_seq = 8192;
  a.tied = false;
  a.norm = Architecture::Norm::kRmsNorm;
  a.position = Architecture::Position::kRope;
  a.activation = Architecture::Activation::kSwiglu;
  a.qkv_bias = a.attention_out_bias = a.mlp_bias = false;
  return a;
}

std::vector<std::string> parameter_names(const ModelGraph& graph, std::size_t unit) {
  std::vector<std::string> names;
  for (const UnitParameter& p : graph.class_of(UnitId(unit)).parameters) {
    names.push_back(graph.units[unit].name + "." + p.name);
  }
  return names;
}

const UnitParameter& parameter(const UnitClass& unit, const std::string& name) {
  return *std::find_if(unit.parameters.begin(), unit.parameters.end(),
                       [&](const UnitParameter& p) { return p.name == name; });
}

// V·h + P·h + L·(qkv 3h² + 3h, out h² + h, up 4h² + 4h, down 4h² + h, two norms 4h) + 2h
// = 38,597,376 + 786,432 + 12·7,087,872 + 1,536 = 124,439,808: the published count of gpt2.
TEST(BuildModel, Gpt2HasThePublishedNumberOfParameters) {
  EXPECT_EQ(parameter_count(build_model(gpt2(), false)), 124'439'808);
}

// 2·V·h + L·(qkv h·6144, out h², gate_up 2·f·h, down f·h, two norms 2h) + h
// = 1,050,673,152 + 32·218,112,000 + 4,096 = 8,030,261,248: the published count of Llama 3 8B.
TEST(BuildModel, Llama3HasThePublishedNumberOfParameters) {
  EXPECT_EQ(parameter_count(build_model(llama_3_8b(), false)), 8'030'261'248);
}

TEST(BuildModel, ThreeClassesServeAnyDepth) {
  const ModelGraph graph = build_model(llama_3_8b(), false);
  EXPECT_EQ(graph.classes.size(), 3u);
  EXPECT_EQ(graph.units.size(), 34u);
  EXPECT_EQ(graph.units.back().sources[0].unit, UnitId(32));
}

TEST(BuildModel, ParameterNamesAreStable) {
  const ModelGraph gpt = build_model(gpt2(), false);
  EXPECT_EQ(parameter_names(gpt, 0),
            (std::vector<std::string>{"embedding.weight", "embedding.positions"}));
  EXPECT_EQ(parameter_names(gpt, 3),
            (std::vector<std::string>{
                "blocks.2.attention_norm.weight", "blocks.2.attention_norm.bias",
                "blocks.2.attention.qkv.weight", "blocks.2.attention.qkv.bias",
                "blocks.2.attention.out.weight", "blocks.2.attention.out.bias",
                "blocks.2.mlp_norm.weight", "blocks.2.mlp_norm.bias", "blocks.2.mlp.up.weight",
                "blocks.2.mlp.up.bias", "blocks.2.mlp.down.weight", "blocks.2.mlp.down.bias"}));
  EXPECT_EQ(parameter_names(gpt, 13),
            (std::vector<std::string>{"head.norm.weight", "head.norm.bias", "head.weight"}));
  EXPECT_EQ(
      parameter_names(build_model(llama_3_8b(), false), 1),
      (std::vector<std::string>{"blocks.0.attention_norm.weight", "blocks.0.attention.qkv.weight",
                                "blocks.0.attention.out.weight", "blocks.0.mlp_norm.weight",
                                "blocks.0.mlp.gate_up.weight", "blocks.0.mlp.down.weight"}));
}

TEST(BuildModel, TiedWeightsNameTheEmbedding) {
  const ModelGraph tied = build_model(gpt2(), false);
  EXPECT_EQ(parameter(tied.classes[0], "weight").tied_to, "embedding.weight");
  EXPECT_EQ(parameter(tied.classes[2], "weight").tied_to, "embedding.weight");
  EXPECT_EQ(parameter(tied.classes[0], "positions").tied_to, "");
  const ModelGraph untied = build_model(llama_3_8b(), false);
  EXPECT_EQ(parameter(untied.classes[2], "weight").tied_to, "");
}

// Dropout on the embedding's output and on two branches a block.
TEST(BuildModel, DropoutOperatorsExistOnlyWhenAsked) {
  const auto count = [](const ModelGraph& graph) {
    std::vector<std::int64_t> counts;
    for (const UnitClass& unit : graph.classes) {
      counts.push_back(
          std::count_if(unit.operators.begin(), unit.operators.end(),
                        [](const Operator& op) { return op.kind == OperatorKind::kDropout; }));
    }
    return counts;
  };
  EXPECT_EQ(count(build_model(gpt2(), true)), (std::vector<std::int64_t>{1, 2, 0}));
  EXPECT_EQ(count(build_model(gpt2(), false)), (std::vector<std::int64_t>{0, 0, 0}));
}

TEST(BuildModel, ProjectionsIntoTheResidualStreamStartSmaller) {
  const UnitClass block = build_model(gpt2(), false).classes[1];
  const double scaled = 0.02 / std::sqrt(24.0);  // 2 · 12 layers
  EXPECT_EQ(parameter(block, "attention.qkv.weight").init_std, 0.02);
  EXPECT_EQ(parameter(block, "mlp.up.weight").init_std, 0.02);
  EXPECT_DOUBLE_EQ(parameter(block, "attention.out.weight").init_std, scaled);
  EXPECT_DOUBLE_EQ(parameter(block, "mlp.down.weight").init_std, scaled);
}

TEST(BuildModel, OnlyMatricesDecay) {
  for (const Architecture& a : {gpt2(), llama_3_8b()}) {
    for (const UnitClass& unit : build_model(a, false).classes) {
      for (const UnitParameter& p : unit.parameters) {
        EXPECT_EQ(p.weight_decay, p.shape.rank == 2) << p.name;
      }
    }
  }
}

TEST(BuildModel, TensorsAreWrittenOnceAndBeforeTheyAreRead) {
  for (const Architecture& a : {gpt2(), llama_3_8b()}) {
    for (const UnitClass& unit : build_model(a, true).classes) {
      std::set<std::int32_t> written(unit.boundary_inputs.begin(), unit.boundary_inputs.end());
      written.insert(unit.external_inputs.begin(), unit.external_inputs.end());
      for (const Operator& op : unit.operators) {
        for (const std::int32_t t : op.inputs) EXPECT_TRUE(written.count(t)) << op.name;
        for (const std::int32_t t : op.outputs) EXPECT_TRUE(written.insert(t).second) << op.name;
        for (const std::int32_t t : op.statistics) EXPECT_TRUE(written.insert(t).second);
      }
      EXPECT_EQ(written.size(), unit.tensors.size());
    }
  }
}

TEST(BuildModel, ShapesFollowHeadsThatDoNotFillHidden) {
  Architecture a = llama_3_8b();
  a.hidden = 96, a.heads = 6, a.kv_heads = 2, a.head_dim = 20, a.ffn = 40, a.vocab = 97;
  const ModelGraph graph = build_model(a, false);
  const auto shapes = infer_class_shapes(graph, {3, 5});
  const UnitClass& block = graph.classes[1];
  const auto shape_of = [&](const std::string& name) {
    for (std::size_t t = 0; t < block.tensors.size(); ++t) {
      if (block.tensors[t].name == name) return shapes[1][t].shape;
    }
    return Shape{};
  };
  EXPECT_EQ(shape_of("attention.qkv"), (Shape{3, 5, 200}));  // (6 + 2·2) · 20
  EXPECT_EQ(shape_of("attention"), (Shape{3, 5, 120}));      // 6 · 20
  EXPECT_EQ(shape_of("attention.lse"), (Shape{3, 6, 5}));
  EXPECT_EQ(shape_of("attention.out"), (Shape{3, 5, 96}));
  EXPECT_EQ(shape_of("mlp.gate_up"), (Shape{3, 5, 80}));
  EXPECT_EQ(shape_of("mlp.swiglu"), (Shape{3, 5, 40}));
}

TEST(CheckArchitecture, NamesTheField) {
  const auto where = [](Architecture a) { return check_architecture(a).error().where; };
  Architecture a = gpt2();
  a.layers = 0;
  EXPECT_EQ(where(a), "model.layers");
  a = gpt2();
  a.kv_heads = 5;
  EXPECT_EQ(where(a), "model.kv_heads");
  a = llama_3_8b();
  a.head_dim = 63;
  EXPECT_EQ(where(a), "model.head_dim");
  a = gpt2();
  a.vocab = std::int64_t{1} << 40;
  EXPECT_EQ(where(a), "model.vocab");
  a = llama_3_8b();
  a.qk_norm = true;
  EXPECT_EQ(where(a), "model.qk_norm");
  EXPECT_TRUE(check_architecture(gpt2()).ok());
}

}  // namespace
}  // namespace bayplan
