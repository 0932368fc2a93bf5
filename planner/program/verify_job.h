// What a rank class has to do and hold, read off the program's units, groups and layouts. For the
// checks of completeness only.
#pragma once

#include <vector>

#include "planner/program/verify_internal.h"

namespace bayplan::verification {

/// What a class knows of its job.
struct Job {
  explicit Job(const ClassProgram& program) : p(program) {
    const std::vector<ProgramUnit>& all = p.program.units;
    std::vector<bool> held(p.program.parameter_groups.size(), false);
    for (std::size_t u = 0; u < all.size(); ++u) {
      if (!here(all[u].stage)) continue;
      units.push_back(UnitId(u));
      has_loss |= class_of(UnitId(u)).loss >= 0;
      for (ParameterGroupId g : all[u].groups) held[g.index()] = true;
    }
    for (std::size_t g = 0; g < held.size(); ++g) {
      if (held[g]) groups.push_back(ParameterGroupId(g));
    }
  }
  bool here(std::int32_t stage) const {
    return p.program.stage_rank[static_cast<std::size_t>(stage)] == p.rank_class.pp;
  }
  std::int32_t stage_of(UnitId u) const { return p.program.units[u.index()].stage; }
  const UnitClass& class_of(UnitId u) const {
    return p.program.graph.classes[static_cast<std::size_t>(p.program.units[u.index()].unit_class)];
  }
  const ParameterGroup& group(ParameterGroupId g) const {
    return p.program.parameter_groups[g.index()];
  }
  bool reduced(ParameterGroupId g) const {
    return degree(p.program.mesh, group(g).replicated_axes) > 1;
  }
  bool sharded(ParameterGroupId g) const { return degree(p.program.mesh, group(g).shard_axes) > 1; }
  bool has_master() const { return p.program.job.precision.has_master; }
  /// How often a ZeRO-3 group is gathered and which activations are offloaded is the plan's choice;
  /// that users find them follows from "read after written".
  bool is_choice(const Instruction& i) const {
    const bool computes = p.kind == ProgramKind::kTrainStep || p.kind == ProgramKind::kEvalStep;
    if (i.purpose == Purpose::kActivations) return computes;
    return computes && i.kind == InstructionKind::kAllGather && i.parameter_group.valid() &&
           group(i.parameter_group).gathered;
  }
  bool tied(ParameterGroupId g) const { return group(g).pp_coordinates.size() > 1; }
  bool first_copy(ParameterGroupId g) const {
    return !group(g).pp_coordinates.empty() && group(g).pp_coordinates.front() == p.rank_class.pp;
  }

  const ClassProgram& p;
  std::vector<UnitId> units;             // held, model order
  std::vector<ParameterGroupId> groups;  // held, ascending
  bool has_loss = false;
};

/// The instructions that the job needs are there, each once.
void check_tasks(const Job& job, Findings& findings);
/// Gradients, scalars and parameters pass from state to state in the one right order.
void check_flow(const Job& job, Findings& findings);

}  // namespace bayplan::verification
