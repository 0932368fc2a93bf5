#include "planner/search/memory_fit.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "planner/core/check.h"

namespace bayplan {
namespace {

std::int64_t padded(const Buffer& buffer) { return round_up(buffer.bytes, kTensorAlignment); }

/// Live device bytes per role, for one point of a replay.
using RoleBytes = std::array<std::int64_t, kBufferRoleCount>;

/// The roles' bytes at the point of `list` where the device arena reaches furthest.
RoleBytes roles_at_peak(const RankClass& c, const InstructionList& list) {
  RoleBytes live{};
  std::int64_t extent = 0;
  const auto reach = [&](const Buffer& b) { extent = std::max(extent, b.offset + padded(b)); };
  for (const Buffer& b : c.buffers) {
    if (!b.persistent || b.tier != Tier::kDevice) continue;
    live[static_cast<std::size_t>(b.role)] += padded(b);
    reach(b);
  }
  RoleBytes at_peak = live;
  std::int64_t most = extent;
  std::vector<bool> is_live(c.buffers.size(), false);
  for (const Instruction& i : list.instructions) {
    for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
      const std::size_t id = list.accesses[static_cast<std::size_t>(a)].buffer.index();
      const Buffer& b = c.buffers[id];
      if (b.persistent || b.tier != Tier::kDevice) continue;
      std::int64_t& bytes = live[static_cast<std::size_t>(b.role)];
      if (i.kind == InstructionKind::kRelease) {
        if (is_live[id]) bytes -= padded(b);
        is_live[id] = false;
      } else if (!is_live[id]) {
        is_live[id] = true;
        bytes += padded(b);
        reach(b);
      }
    }
    // Only growth can reach further, so the first time at the final extent is the peak.
    if (extent > most) {
      most = extent;
      at_peak = live;
    }
  }
  return at_peak;
}

std::vector<MemoryTerm> terms_of(const RoleBytes& roles, Bytes allocated, Bytes context) {
  std::vector<MemoryTerm> terms;
  const auto add = [&](std::string_view name, std::int64_t bytes) {
    const auto known = std::find_if(terms.begin(), terms.end(),
                                    [&](const MemoryTerm& t) { return t.name == name; });
    if (known == terms.end()) {
      terms.push_back({std::string(name), Bytes(bytes)});
    } else {
      known->bytes += Bytes(bytes);
    }
  };
  std::int64_t covered = 0;
  for (std::size_t r = 0; r < roles.size(); ++r) {
    add(memory_term_name(static_cast<BufferRole>(r)), roles[r]);
    covered += roles[r];
  }
  add("context", context.value);
  add("fragmentation", allocated.value - covered);
  std::stable_sort(terms.begin(), terms.end(),
                   [](const MemoryTerm& a, const MemoryTerm& b) { return a.bytes > b.bytes; });
  return terms;
}

/// The sub-program with the largest device extent; a training step on ties.
ProgramKind fullest_program(const RankClass& c) {
  ProgramKind best = ProgramKind::kTrainStep;
  for (int k = 0; k < kProgramKindCount; ++k) {
    const auto kind = static_cast<std::size_t>(k);
    if (c.peak_bytes[kind] > c.peak_bytes[static_cast<std::size_t>(best)])
      best = static_cast<ProgramKind>(k);
  }
  return best;
}

}  // namespace

std::vector<RankMemoryNeed> memory_needs(const Program& program, const Cluster& cluster) {
  std::vector<RankMemoryNeed> needs(program.classes.size());
  for (int rank = program.world_size() - 1; rank >= 0; --rank) {
    RankMemoryNeed& need =
        needs[static_cast<std::size_t>(program.rank_class[static_cast<std::size_t>(rank)])];
    need.rank = rank;
    ++need.count;
  }
  for (std::size_t i = 0; i < needs.size(); ++i) {
    const RankClass& c = program.classes[i];
    RankMemoryNeed& need = needs[i];
    const NodeGroup& group =
        cluster.groups[static_cast<std::size_t>(place_of(cluster, need.rank).group)];
    need.stage = c.stages.empty() ? 0 : c.stages.front();
    need.moment = fullest_program(c);
    need.allocated = Bytes(c.arena_bytes[static_cast<std::size_t>(Tier::kDevice)]);
    need.device = need.allocated + group.device.context;
    need.capacity = group.device.memory;
    need.host = Bytes(c.arena_bytes[static_cast<std::size_t>(Tier::kHost)]);
    const InstructionList& list = c.programs[static_cast<std::size_t>(need.moment)];
    need.terms = terms_of(roles_at_peak(c, list), need.allocated, group.device.context);
  }
  return needs;
}

std::size_t tightest(const std::vector<RankMemoryNeed>& needs) {
  BAYPLAN_CHECK(!needs.empty(), "a program has ranks");
  std::size_t best = 0;
  for (std::size_t i = 1; i < needs.size(); ++i) {
    if (needs[i].capacity - needs[i].device < needs[best].capacity - needs[best].device) best = i;
  }
  return best;
}

bool fits_host(const std::vector<RankMemoryNeed>& needs, const Program& program,
               const Cluster& cluster) {
  std::map<int, std::int64_t> host_per_node;
  for (int rank = 0; rank < program.world_size(); ++rank) {
    const RankMemoryNeed& need =
        needs[static_cast<std::size_t>(program.rank_class[static_cast<std::size_t>(rank)])];
    if (need.host.value == 0) continue;
    const DevicePlace place = place_of(cluster, rank);
    std::int64_t& used = host_per_node[place.node];
    used += need.host.value;
    if (used > cluster.groups[static_cast<std::size_t>(place.group)].host_memory.value)
      return false;
  }
  return true;
}

}  // namespace bayplan
