// Replays a rank's buffer table: which bytes of each arena are live while its list is executed.
// The same table that the executor allocates from, so nothing here is an estimate.
// Not for: what an allocator would reserve (caching allocators have no part in an arena).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/program/program.h"
#include "planner/program/timeline.h"

namespace bayplan::sim {

/// Largest live bytes and largest extent (end of the last live buffer) per tier. The extent over
/// all programs of a class equals RankClass::arena_bytes.
struct RankMemory {
  std::array<std::int64_t, kTierCount> peak_live{};
  std::array<std::int64_t, kTierCount> peak_extent{};
  friend bool operator==(const RankMemory&, const RankMemory&) = default;
};

/// A buffer becomes live when its first write starts, or dead when its release ends.
struct LiveChange {
  InstructionId instruction;
  Tier tier = Tier::kDevice;
  std::int64_t bytes = 0;  // negative: released
  friend bool operator==(const LiveChange&, const LiveChange&) = default;
};

struct ArenaReplay {
  std::array<std::int64_t, kTierCount> persistent{};  // live before, during and after
  std::vector<LiveChange> changes;                    // in issue order
  RankMemory memory;                                  // in issue order
};

ArenaReplay replay_arena(const RankClass& rank_class, ProgramKind kind);

/// Largest extents over the programs that a training run executes (all of them).
std::array<std::int64_t, kTierCount> replay_extent(const RankClass& rank_class);

/// Live bytes over time, from the times of `timeline.events`; appended to timeline.memory.
void add_memory_samples(const Program& program, Timeline& timeline);

}  // namespace bayplan::sim
