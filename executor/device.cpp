#include "executor/device.h"

#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

template <class Match>
const Access* find_first(const ComputeCall& call, Match match) {
  const Range range = call.instruction->accesses;
  for (std::int32_t i = range.begin; i < range.end; ++i) {
    const Access& access = call.list->accesses[static_cast<std::size_t>(i)];
    if (match(call.rank_class->buffers[access.buffer.index()])) return &access;
  }
  return nullptr;
}

}  // namespace

std::byte* access_data(const ComputeCall& call, const Access& access) {
  const Buffer& buffer = call.rank_class->buffers[access.buffer.index()];
  std::byte* arena = call.arenas[static_cast<std::size_t>(buffer.tier)];
  if (arena == nullptr) return nullptr;
  return arena + buffer.offset +
         touched_bytes(*call.program, call.rank, *call.instruction, access).begin;
}

const Access* find_access(const ComputeCall& call, Region region, std::int32_t region_index) {
  return find_first(
      call, [&](const Buffer& b) { return b.region == region && b.region_index == region_index; });
}

const Access* find_access(const ComputeCall& call, BufferRole role, ParameterGroupId group) {
  return find_first(call, [&](const Buffer& b) {
    return b.role == role && (!group.valid() || b.parameter_group == group);
  });
}

}  // namespace bayplan::exec
