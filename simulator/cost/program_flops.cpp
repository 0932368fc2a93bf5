#include "simulator/cost/program_flops.h"

#include <vector>

#include "planner/cost/operator_shapes.h"

namespace bayplan::sim {
namespace {

/// Work of one unit for one micro-batch, by phase.
struct UnitFlops {
  FlopCount forward;
  FlopCount backward_input;
  FlopCount backward_weight;
  FlopCount recompute;
};

UnitFlops unit_flops(const Program& program, const UnitLayout& layout) {
  UnitFlops sum;
  const auto unit_class = static_cast<std::size_t>(layout.unit_class);
  std::size_t o = 0;
  for (const OperatorView& view : operators_of(program.graph.classes[unit_class], layout.shapes)) {
    const OperatorSpec& spec = operator_spec(view.op->kind);
    const auto flops = [&](Phase phase) {
      return spec.work(*view.op, view.shapes(), phase, program.job.precision).flops;
    };
    sum.forward += flops(Phase::kForward);
    if (layout.reruns[o++]) sum.recompute += flops(Phase::kForward);
    if (spec.differentiable_inputs != 0) sum.backward_input += flops(Phase::kBackwardInput);
    if (!view.op->parameters.empty()) sum.backward_weight += flops(Phase::kBackwardWeight);
  }
  return sum;
}

}  // namespace

ProgramFlops program_flops(const Program& program, ProgramKind kind) {
  std::vector<UnitFlops> units;
  for (const UnitLayout& layout : program.layouts) units.push_back(unit_flops(program, layout));

  std::vector<double> ranks(program.classes.size(), 0.0);
  for (const std::int32_t c : program.rank_class) ranks[static_cast<std::size_t>(c)] += 1.0;

  ProgramFlops sum;
  for (std::size_t c = 0; c < program.classes.size(); ++c) {
    for (const Instruction& i :
         program.classes[c].programs[static_cast<std::size_t>(kind)].instructions) {
      if (!i.unit.valid()) continue;
      const UnitFlops& unit = units[static_cast<std::size_t>(program.units[i.unit.index()].layout)];
      double model = 0.0;
      double recomputed = 0.0;
      if (i.kind == InstructionKind::kForward) model = unit.forward.value;
      if (i.kind == InstructionKind::kBackward)
        model = unit.backward_input.value + unit.backward_weight.value;
      if (i.kind == InstructionKind::kBackwardInput) model = unit.backward_input.value;
      if (i.kind == InstructionKind::kBackwardWeight) model = unit.backward_weight.value;
      if (i.kind == InstructionKind::kRecompute) recomputed = unit.recompute.value;
      sum.model.value += model * ranks[c];
      sum.executed.value += (model + recomputed) * ranks[c];
    }
  }
  return sum;
}

}  // namespace bayplan::sim
