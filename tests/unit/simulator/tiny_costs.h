// Programs and costs whose step time can be derived by hand. Not for: anything realistic.
#pragma once

#include "planner/core/cluster.h"
#include "simulator/cost/cost_model.h"
#include "tests/property/random_program.h"

namespace bayplan::sim::test {

/// `devices` GPUs or CPUs in one node; CPUs share nothing unless the cost model says so.
inline Cluster cluster_of(DeviceClass device_class, int devices, int cores = 0) {
  Cluster cluster;
  cluster.name = "test";
  cluster.groups.emplace_back();
  cluster.groups.back().devices_per_node = devices;
  cluster.groups.back().cores = cores;
  cluster.groups.back().device.device_class = device_class;
  return cluster;
}

/// What a whole stage costs per micro-batch, whatever units it has.
struct StageCosts {
  std::int64_t forward = 1;
  std::int64_t backward = 2;
  std::int64_t message = 0;
  std::int64_t collective = 0;
  std::int64_t optimizer = 0;
};

/// Puts a stage's time on its first unit (in model order); everything else is free.
inline CostModel stage_costs(const Program& program, const StageCosts& costs) {
  CostModel model;
  model.compute = [&program, costs](int rank_class, const InstructionList&, const Instruction& i) {
    ComputeCost cost;
    if (i.kind == InstructionKind::kOptimizerStep) cost.time = Picoseconds(costs.optimizer);
    if (!i.unit.valid() || is_matched(i.kind)) return cost;
    const ProgramUnit& unit = program.units[i.unit.index()];
    bool first = true;
    for (std::size_t u = 0; u < i.unit.index(); ++u)
      first = first && program.units[u].stage != unit.stage;
    if (!first) return cost;
    static_cast<void>(rank_class);
    const bool forward = i.kind == InstructionKind::kForward;
    cost.time = Picoseconds(forward ? costs.forward : costs.backward);
    return cost;
  };
  model.communication = [costs](const CommunicationCall& call) {
    CommunicationCost cost;
    cost.work = Picoseconds(is_collective(call.kind) ? costs.collective : costs.message);
    return cost;
  };
  return model;
}

}  // namespace bayplan::sim::test
