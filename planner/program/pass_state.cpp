// Persistent buffers: parameters, master weights, moments, scalars and the workspace. They sit
// below all transient buffers of the arena.
#include <algorithm>
#include <utility>

#include "planner/program/lowering.h"

namespace bayplan {
namespace {

BufferId add_state(ClassDraft& c, BufferRole role, ParameterGroupId group, std::int64_t bytes,
                   Tier tier = Tier::kDevice) {
  Buffer b;
  b.tier = tier;
  b.role = role;
  b.parameter_group = group;
  b.persistent = true;
  b.bytes = bytes;
  c.result.buffers.push_back(b);
  return BufferId(c.result.buffers.size() - 1);
}

}  // namespace

void pass_state(Lowering& lowering, ClassDraft& c) {
  const Program& program = lowering.program;
  const Precision& precision = program.job.precision;
  const std::size_t groups = program.parameter_groups.size();
  for (auto* table : {&c.parameters, &c.gradients, &c.master, &c.moment1, &c.moment2})
    table->assign(groups, {});
  for (ParameterGroupId g : c.groups) {
    const ParameterGroup& group = program.parameter_groups[g.index()];
    const std::int64_t state = group.shard_elements * dtype_size(precision.state);
    c.parameters[g.index()] = add_state(c, BufferRole::kParameters, g,
                                        group.parameter_elements * dtype_size(group.dtype));
    for (const auto& [role, table] : {std::pair{BufferRole::kMaster, &c.master},
                                      {BufferRole::kMoment1, &c.moment1},
                                      {BufferRole::kMoment2, &c.moment2}}) {
      if (keeps(program, group, role))
        (*table)[g.index()] = add_state(c, role, g, state, group.state_tier);
    }
  }
  c.scalars = add_state(c, BufferRole::kScalars, {},
                        static_cast<std::int64_t>((1 + groups) * sizeof(double)));

  std::int64_t workspace = 0;
  for (UnitId u : c.units) {
    const UnitLayout& layout = lowering.layout_of(u);
    workspace = std::max(workspace, layout.forward_scratch_bytes + layout.workspace_bytes[0]);
    workspace =
        std::max(workspace, layout.fused.scratch_bytes +
                                std::max(layout.workspace_bytes[1], layout.workspace_bytes[2]));
    workspace = std::max(workspace, layout.split.scratch_bytes + layout.workspace_bytes[1]);
    workspace = std::max(workspace, layout.workspace_bytes[2]);
  }
  if (workspace > 0) c.workspace = add_state(c, BufferRole::kWorkspace, {}, workspace);
}

BufferId unit_buffer(Lowering& lowering, ClassDraft& c, UnitId unit, std::int32_t micro_batch,
                     UnitBuffer kind) {
  std::int32_t& first = c.first_slot[unit.index()];
  if (first < 0) {
    first = static_cast<std::int32_t>(c.unit_buffers.size());
    c.unit_buffers.resize(
        c.unit_buffers.size() + static_cast<std::size_t>(lowering.micro_batches) * kUnitBufferCount,
        -1);
  }
  const std::size_t slot = static_cast<std::size_t>(first) +
                           static_cast<std::size_t>(micro_batch) * kUnitBufferCount +
                           static_cast<std::size_t>(kind);
  if (c.unit_buffers[slot] >= 0) return BufferId(c.unit_buffers[slot]);
  const UnitLayout& layout = lowering.layout_of(unit);
  const UnitClass& unit_class = lowering.class_of(unit);
  Buffer b;
  b.unit = unit;
  b.micro_batch = micro_batch;
  switch (kind) {
    case UnitBuffer::kOutput:
      b.role = BufferRole::kActivation;
      b.region = Region::kBoundaryOutput;
      b.bytes = layout.boundary_output_bytes.empty() ? 0 : layout.boundary_output_bytes[0];
      break;
    case UnitBuffer::kOutputGradient:
      b.role = BufferRole::kActivationGradient;
      b.region = Region::kBoundaryOutputGradient;
      b.bytes = layout.boundary_output_bytes.empty() ? 0 : layout.boundary_output_bytes[0];
      break;
    case UnitBuffer::kSavedForInput:
      b.role = BufferRole::kSaved;
      b.region = Region::kSavedForInput;
      b.bytes = layout.saved_for_input_bytes;
      break;
    case UnitBuffer::kSavedForWeight:
      b.role = unit_class.loss >= 0 ? BufferRole::kLogits : BufferRole::kSaved;
      b.region = Region::kSavedForWeight;
      b.bytes = layout.saved_for_weight_bytes;
      break;
    case UnitBuffer::kHostForInput:
      b.tier = Tier::kHost;
      [[fallthrough]];
    case UnitBuffer::kReloadedForInput:
      b.role = BufferRole::kSaved;
      b.region = Region::kSavedForInput;
      b.bytes = layout.saved_for_input_bytes;
      break;
    case UnitBuffer::kHostForWeight:
      b.tier = Tier::kHost;
      [[fallthrough]];
    case UnitBuffer::kReloadedForWeight:
      b.role = BufferRole::kSaved;
      b.region = Region::kSavedForWeight;
      b.bytes = layout.saved_for_weight_bytes;
      break;
    case UnitBuffer::kForwardForInput:
    case UnitBuffer::kRecomputedForInput:
      b.role = BufferRole::kRecomputed;
      b.region = Region::kRecomputedForInput;
      b.bytes = layout.recomputed_for_input_bytes;
      break;
    case UnitBuffer::kForwardForWeight:
    case UnitBuffer::kRecomputedForWeight:
      b.role = BufferRole::kRecomputed;
      b.region = Region::kRecomputedForWeight;
      b.bytes = layout.recomputed_for_weight_bytes;
      break;
    case UnitBuffer::kStash:
      b.role = BufferRole::kActivationGradient;
      b.region = Region::kGradientStash;
      b.bytes = layout.split.stash_bytes;
      break;
    case UnitBuffer::kTokens:
    case UnitBuffer::kLabels:
      b.role = BufferRole::kActivation;
      b.region = Region::kExternal;
      b.region_index = kind == UnitBuffer::kTokens ? 0 : 1;
      b.bytes =
          lowering.program.job.micro_batch * lowering.program.job.seq * dtype_size(DType::kInt32);
      break;
  }
  if (b.bytes == 0) return {};
  c.result.buffers.push_back(b);
  c.unit_buffers[slot] = static_cast<std::int32_t>(c.result.buffers.size()) - 1;
  return BufferId(c.unit_buffers[slot]);
}

}  // namespace bayplan
