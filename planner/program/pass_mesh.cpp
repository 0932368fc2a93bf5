// Mesh, communication groups, units on stages, and one class draft per pipeline coordinate.
#include "planner/program/lowering.h"

namespace bayplan {

void pass_mesh(Lowering& lowering, const Schedule& schedule) {
  const Plan& plan = lowering.plan;
  Program& program = lowering.program;
  program.model = plan.model;
  program.mesh = plan.mesh;
  program.job = plan.job;
  program.threads_per_rank = plan.threads_per_rank;
  program.reduction_dtype = plan.job.precision.gradient;
  lowering.micro_batches = plan.replicas.front().micro_batches;
  for (int rank : schedule.stage_rank) program.stage_rank.push_back(rank);

  auto add_group = [&](const char* name, AxisSet axes) {
    program.communication_groups.push_back({name, axes, {}});
    return CommunicationGroupId(program.communication_groups.size() - 1);
  };
  lowering.world = add_group("world", kAllAxes);
  lowering.data_parallel =
      add_group("dp", static_cast<AxisSet>(axis_bit(Axis::kDp) | axis_bit(Axis::kCp)));

  lowering.unit_stage.assign(program.graph.units.size(), -1);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    for (int u = stage.first_unit; u < stage.first_unit + stage.unit_count; ++u) {
      lowering.unit_stage[static_cast<std::size_t>(u)] = static_cast<std::int32_t>(s);
    }
  }
  for (std::size_t u = 0; u < program.graph.units.size(); ++u) {
    const Unit& unit = program.graph.units[u];
    ProgramUnit placed;
    placed.unit_class = unit.unit_class;
    placed.stage = lowering.unit_stage[u];
    placed.name = unit.name;
    placed.sources = unit.sources;
    program.units.push_back(std::move(placed));
  }

  for (int pp = 0; pp < plan.mesh.pp; ++pp) {
    ClassDraft c;
    c.result.pp = pp;
    c.result.micro_batches = lowering.micro_batches;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      if (program.stage_rank[s] != pp) continue;
      c.result.stages.push_back(static_cast<std::int32_t>(s));
      const StagePlan& stage = plan.stages[s];
      for (int u = stage.first_unit; u < stage.first_unit + stage.unit_count; ++u)
        c.units.push_back(UnitId(u));
    }
    c.first_slot.assign(program.units.size(), -1);
    lowering.classes.push_back(std::move(c));
  }
}

}  // namespace bayplan
