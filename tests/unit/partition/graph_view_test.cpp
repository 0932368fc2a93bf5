// The operator graph: order, and where a single tensor crosses.
#include "planner/partition/graph_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "models/build_model.h"
#include "models/registry.h"

namespace bayplan {
namespace {

ModelGraph tiny(bool dropout = false) {
  return build_model(resolve_model("gpt:hidden=8,layers=2,heads=2,vocab=11,tied=no")->architecture,
                     dropout);
}

std::string name_of(const ModelGraph& graph, const OperatorNode& node) {
  return graph.units[node.unit.index()].name + "/" +
         graph.class_of(node.unit).operators[static_cast<std::size_t>(node.position)].name;
}

TEST(GraphView, OrderPutsProducersFirstAndHoldsEveryOperator) {
  const ModelGraph graph = tiny();
  const auto order = topological_order(graph);
  ASSERT_TRUE(order.ok());
  std::size_t operators = 0;
  for (std::size_t u = 0; u < graph.units.size(); ++u)
    operators += graph.class_of(UnitId(u)).operators.size();
  EXPECT_EQ(order->size(), operators);
  // A chain of units in model order is its own topological order.
  EXPECT_TRUE(std::is_sorted(order->begin(), order->end()));
}

TEST(GraphView, ResidualBranchesAreNoCutsButTheirSumsAre) {
  const ModelGraph graph = tiny();
  const auto cuts = single_tensor_cuts(graph);
  ASSERT_TRUE(cuts.ok());
  std::map<OperatorKind, int> kinds;
  for (const OperatorNode& node : *cuts) {
    ++kinds[graph.class_of(node.unit).operators[static_cast<std::size_t>(node.position)].kind];
  }
  // Behind the embedding, behind both residual sums of both blocks, and behind the final norm.
  EXPECT_EQ(kinds[OperatorKind::kEmbedding], 1);
  EXPECT_EQ(kinds[OperatorKind::kResidualAdd], 4);
  EXPECT_EQ(kinds[OperatorKind::kLayerNorm], 1);
  EXPECT_EQ(cuts->size(), 6u);
  EXPECT_TRUE(name_of(graph, cuts->back()).starts_with("head/"));
}

TEST(GraphView, EveryUnitBoundaryOfAChainIsLegal) {
  for (const bool dropout : {false, true}) {
    const ModelGraph graph = tiny(dropout);
    const auto legal = unit_cuts(graph);
    ASSERT_TRUE(legal.ok());
    EXPECT_EQ(*legal, std::vector<bool>(graph.units.size() - 1, true));
    EXPECT_TRUE(check_stage_boundaries(graph, {{0, 1, 0}, {1, 2, 0}, {3, 1, 0}}).ok());
  }
}

/// Gives the last block a second boundary input that reads the embedding's output, and uses it.
ModelGraph with_skip() {
  ModelGraph graph = tiny();
  UnitClass skipping = graph.class_of(UnitId(2));
  const auto tensor = static_cast<std::int32_t>(skipping.tensors.size());
  skipping.tensors.push_back({"skip"});
  skipping.boundary_inputs.push_back(tensor);
  for (Operator& op : skipping.operators) {
    if (op.kind == OperatorKind::kResidualAdd) op.inputs[0] = tensor;
  }
  graph.classes.push_back(skipping);
  graph.units[2].unit_class = static_cast<std::int32_t>(graph.classes.size() - 1);
  graph.units[2].sources.push_back({UnitId(0), 0});
  return graph;
}

TEST(GraphView, ASkipOverAUnitMakesTheCutBehindItIllegal) {
  const ModelGraph graph = with_skip();
  const auto legal = unit_cuts(graph);
  ASSERT_TRUE(legal.ok());
  // Behind unit 1 both its own output and the embedding's cross.
  EXPECT_EQ(*legal, (std::vector<bool>{true, false, true}));
  const Status status = check_stage_boundaries(graph, {{0, 2, 0}, {2, 2, 0}});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, "illegal-cut");
  EXPECT_EQ(status.error().where, "plan/stages/0");
}

TEST(GraphView, ACycleIsNamed) {
  ModelGraph graph = tiny();
  graph.units[1].sources[0] = {UnitId(2), 0};  // block 0 reads block 1, which reads block 0
  const auto order = topological_order(graph);
  ASSERT_FALSE(order.ok());
  EXPECT_EQ(order.error().code, "graph-cycle");
}

}  // namespace
}  // namespace bayplan
