// What the event loop needs, computed once per program, cluster and cost model: class graphs,
// matches, and the cost of every call. Not for: anything that depends on time.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/cluster.h"
#include "planner/program/program.h"
#include "simulator/cost/cost_model.h"
#include "simulator/engine/class_graph.h"

namespace bayplan::sim {

/// Costs of one rank class, per call of its graph; zero for calls that have partners.
struct ClassCosts {
  std::vector<ComputeCost> calls;
  /// Host time from the start of the step until the call is issued; all 0 for CPU ranks.
  std::vector<std::int64_t> issued_at;
};

struct Prepared {
  const Program* program = nullptr;
  ProgramKind kind = ProgramKind::kTrainStep;
  std::vector<ExecutionStyle> styles;  // per class
  std::vector<ClassGraph> graphs;      // per class
  std::vector<ClassCosts> costs;       // per class
  Matching matching;
  std::vector<CommunicationCost> match_costs;  // per match
  /// Per rank: position in `nodes`, or -1 when its device shares nothing.
  std::vector<std::int32_t> node_of;
  std::vector<CpuNodeModel> nodes;
};

/// The cluster must have a device for every rank.
Prepared prepare(const Program& program, ProgramKind kind, const Cluster& cluster,
                 const CostModel& costs);

}  // namespace bayplan::sim
