// A ModelGraph as one directed graph of operators over all units, for questions that are about
// graphs: order, dominators, cuts. The graph itself (Boost.Graph) stays in the .cpp. Not for:
// costs or balancing of stages.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "planner/core/ids.h"
#include "planner/core/model_graph.h"
#include "planner/core/plan.h"
#include "planner/core/result.h"

namespace bayplan {

/// One operator of one unit; `position` is its place in the unit class's operators.
struct OperatorNode {
  UnitId unit;
  std::int32_t position = 0;
  friend auto operator<=>(const OperatorNode&, const OperatorNode&) = default;
};

/// Every operator after all that it reads from; among operators that are free to run, the earlier
/// unit and position comes first. Error "graph-cycle" names an operator on a cycle.
Result<std::vector<OperatorNode>> topological_order(const ModelGraph& graph);

/// Operators that every path from an input to the loss runs through (they dominate it), in
/// topological order, the loss itself excluded. Right after such an operator only its own output
/// is needed by what follows: the model can be cut there with a single tensor crossing.
Result<std::vector<OperatorNode>> single_tensor_cuts(const ModelGraph& graph);

/// Per unit but the last: whether a cut behind it lets exactly one tensor cross, which follows
/// from single_tensor_cuts.
Result<std::vector<bool>> unit_cuts(const ModelGraph& graph);

/// Whether each boundary between stages is a legal cut today: one tensor crosses it. `stages` are
/// contiguous and cover the units. The error names the stage.
Status check_stage_boundaries(const ModelGraph& graph, const std::vector<StagePlan>& stages);

}  // namespace bayplan
