#include "executor/memory/arena_use.h"

#include <algorithm>

namespace bayplan::exec {

std::int64_t scratch_bytes(const Program& program, const Instruction& instruction) {
  if (!instruction.unit.valid()) return 0;
  const UnitLayout& layout = program.layout_of(instruction.unit);
  if (instruction.kind == InstructionKind::kForward ||
      instruction.kind == InstructionKind::kRecompute) {
    return layout.forward_scratch_bytes;
  }
  if (instruction.kind == InstructionKind::kBackward) return layout.fused.scratch_bytes;
  if (instruction.kind == InstructionKind::kBackwardInput) return layout.split.scratch_bytes;
  return 0;
}

ArenaUse::ArenaUse(const Program& program, int rank)
    : program_(program), rank_class_(program.class_of(rank)), alive_(rank_class_.buffers.size()) {
  for (std::size_t i = 0; i < alive_.size(); ++i) {
    const Buffer& b = rank_class_.buffers[i];
    alive_[i] = b.persistent;
    if (!b.persistent) continue;
    live_[static_cast<std::size_t>(b.tier)] += round_up(b.bytes, kTensorAlignment);
  }
}

void ArenaUse::change(InstructionId id, Tier tier, std::int64_t bytes) {
  live_[static_cast<std::size_t>(tier)] += bytes;
  changes_.push_back({id, tier, bytes});
}

bool ArenaUse::begin(const InstructionList& list, InstructionId id) {
  const Instruction& instruction = list.instructions[id.index()];
  bool changed = false;
  for (std::int32_t i = instruction.accesses.begin; i < instruction.accesses.end; ++i) {
    const Access& access = list.accesses[static_cast<std::size_t>(i)];
    if (access.mode == AccessMode::kRead || alive_[access.buffer.index()]) continue;
    const Buffer& b = rank_class_.buffers[access.buffer.index()];
    alive_[access.buffer.index()] = true;
    change(id, b.tier, round_up(b.bytes, kTensorAlignment));
    changed = true;
  }
  return changed;
}

void ArenaUse::executed(const InstructionList& list, InstructionId id, bool library_workspace) {
  const Instruction& instruction = list.instructions[id.index()];
  for (std::int32_t i = instruction.accesses.begin; i < instruction.accesses.end; ++i) {
    const Access& access = list.accesses[static_cast<std::size_t>(i)];
    const Buffer& b = rank_class_.buffers[access.buffer.index()];
    std::int64_t marked = b.bytes;
    if (b.role == BufferRole::kWorkspace) {
      const std::int64_t scratch = scratch_bytes(program_, instruction);
      workspace_declared_ = std::max(workspace_declared_, access.bytes - scratch);
      marked = library_workspace ? access.bytes : scratch;
      if (marked == 0) continue;
    }
    std::int64_t& high = high_water_[static_cast<std::size_t>(b.tier)];
    high = std::max(high, b.offset + round_up(marked, kTensorAlignment));
  }
}

bool ArenaUse::release(const InstructionList& list, InstructionId id) {
  const Instruction& instruction = list.instructions[id.index()];
  bool changed = false;
  for (std::int32_t i = instruction.accesses.begin; i < instruction.accesses.end; ++i) {
    const BufferId buffer = list.accesses[static_cast<std::size_t>(i)].buffer;
    if (!alive_[buffer.index()]) continue;
    const Buffer& b = rank_class_.buffers[buffer.index()];
    alive_[buffer.index()] = false;
    change(id, b.tier, -round_up(b.bytes, kTensorAlignment));
    changed = true;
  }
  return changed;
}

}  // namespace bayplan::exec
