// Order of sums: floating-point addition does not associate, so every parameter's gradient, and
// the loss, is added over micro-batches in ascending order whatever the schedule. A tied weight
// whose units are in several stages of one rank is added to in ascending order by each unit. The
// first addition of a step overwrites what the buffer held before. That each micro-batch
// contributes once follows from completeness, and that issue order is execution order from the
// hazards.
#include <map>

#include "planner/program/verify_internal.h"

namespace bayplan::verification {
namespace {

/// Whether units of several of this rank's stages add to each group's gradient.
std::vector<bool> from_several_stages(const ClassProgram& p) {
  std::vector<std::int32_t> stage(p.program.parameter_groups.size(), -1);
  std::vector<bool> several(p.program.parameter_groups.size(), false);
  for (const ProgramUnit& unit : p.program.units) {
    if (p.program.stage_rank[static_cast<std::size_t>(unit.stage)] != p.rank_class.pp) continue;
    for (ParameterGroupId g : unit.groups) {
      std::int32_t& seen = stage[g.index()];
      if (seen >= 0 && seen != unit.stage) several[g.index()] = true;
      seen = unit.stage;
    }
  }
  return several;
}

/// One sum under way.
struct Sum {
  std::int32_t last = -1;          // micro-batch
  std::int32_t last_by_unit = -1;  // its unit; tied weights receive from several
  std::int32_t instruction = -1;
};

}  // namespace

void check_accumulation(const ClassProgram& p, Findings& findings) {
  std::vector<Sum> gradients(p.program.parameter_groups.size());
  const std::vector<bool> by_unit = from_several_stages(p);
  std::vector<std::int32_t> last_of_unit(p.program.units.size(), -1);
  std::map<std::pair<std::int32_t, std::int32_t>, Sum> unit_gradients;  // (group, micro-batch)
  Sum loss;
  const auto add = [&](Sum& sum, bool of_units, std::int32_t index, AccessMode mode,
                       BufferId buffer) {
    const Instruction& i = p.at(index);
    std::int32_t none = -1;
    std::int32_t& of_unit = i.unit.valid() ? last_of_unit[i.unit.index()] : none;
    const bool late = of_units ? i.micro_batch < of_unit
                               : i.micro_batch < sum.last || (i.micro_batch == sum.last &&
                                                              i.unit.value == sum.last_by_unit);
    if (of_units) of_unit = i.micro_batch;
    const auto report = [&](const std::string& problem) {
      findings.add(
          Violation::kAccumulationOrder, p.kind, p.rank, InstructionId(index),
          describe(p.list, index) + " adds to " + describe(p.rank_class, buffer) + problem);
    };
    const bool first = sum.instruction < 0;
    if (first != (mode == AccessMode::kWrite)) {
      report(first ? " first, but does not start the sum" : " but starts the sum over");
    } else if (late) {
      report(" behind " + describe(p.list, sum.instruction));
    }
    sum = {i.micro_batch, i.unit.value, index};
  };
  for (std::int32_t index = 0; index < p.size() && !findings.full(); ++index) {
    const Instruction& i = p.at(index);
    const bool forward = i.kind == InstructionKind::kForward;
    const bool backward = i.kind == InstructionKind::kBackward ||
                          i.kind == InstructionKind::kBackwardWeight ||
                          i.kind == InstructionKind::kAccumulate;
    if (!forward && !backward) continue;
    for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
      const Access& access = p.access(a);
      const Buffer& buffer = p.buffer(access.buffer);
      if (access.mode == AccessMode::kRead) continue;
      if (backward && buffer.role == BufferRole::kGradients) {
        const std::size_t g = buffer.parameter_group.index();
        const bool units = by_unit[g] && i.kind != InstructionKind::kAccumulate;
        add(gradients[g], units, index, access.mode, access.buffer);
      } else if (backward && buffer.role == BufferRole::kUnitGradients) {
        // Only a tied weight has more than one contribution in a micro-batch.
        add(unit_gradients[{buffer.parameter_group.value, buffer.micro_batch}], true, index,
            access.mode, access.buffer);
      } else if (forward && buffer.role == BufferRole::kScalars) {
        add(loss, false, index, access.mode, access.buffer);
      }
    }
  }
}

}  // namespace bayplan::verification
