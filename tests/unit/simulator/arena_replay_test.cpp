#include "simulator/memory/arena_replay.h"

#include <gtest/gtest.h>

#include "simulator/engine/simulate.h"
#include "tests/unit/simulator/tiny_costs.h"

namespace bayplan::sim {
namespace {

using bayplan::testing::lower_tiny;
using bayplan::testing::random_plan;

TEST(ArenaReplay, LargestExtentIsTheArena) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Program program = lower_tiny(random_plan(seed));
    for (const RankClass& c : program.classes) EXPECT_EQ(replay_extent(c), c.arena_bytes);
  }
}

TEST(ArenaReplay, EverythingTransientIsReleased) {
  const Program program = lower_tiny({.pp = 2, .micro_batches = 3, .layers = 2});
  for (const RankClass& c : program.classes) {
    for (int k = 0; k < kProgramKindCount; ++k) {
      std::int64_t live = 0;
      for (const LiveChange& change : replay_arena(c, static_cast<ProgramKind>(k)).changes) live += change.bytes;
      EXPECT_EQ(live, 0);
    }
  }
}

TEST(ArenaReplay, EarlierStagesHoldMoreMicroBatches) {
  // 1F1B: stage r of p keeps p - r micro-batches in flight. Four equal stages of one block each
  // but for embedding and head, so compare the two middle ones.
  const Program program = lower_tiny({.pp = 4, .micro_batches = 8, .layers = 6});
  const auto transient = [&](std::size_t c) {
    const ArenaReplay replay = replay_arena(program.classes[c], ProgramKind::kTrainStep);
    return replay.memory.peak_live[0] - replay.persistent[0];
  };
  EXPECT_GT(transient(1), transient(2));
}

TEST(ArenaReplay, SamplesFollowTheTimeline) {
  const Program program = lower_tiny({.pp = 2, .micro_batches = 4, .layers = 2});
  SimulateOptions options;
  const auto result = simulate(program, testing::cluster_of(DeviceClass::kGpu, 2), unit_costs(), options);
  ASSERT_TRUE(result.ok());
  std::int64_t last_time = -1;
  std::int32_t last_rank = -1;
  std::vector<std::int64_t> peak(2, 0), first(2, 0), final(2, 0);
  for (const MemorySample& s : result->timeline.memory) {
    if (s.rank != last_rank) {
      last_time = -1;
      first[static_cast<std::size_t>(s.rank)] = s.live_bytes;
    }
    EXPECT_GT(s.time.value, last_time);
    last_time = s.time.value;
    last_rank = s.rank;
    std::int64_t& p = peak[static_cast<std::size_t>(s.rank)];
    p = std::max(p, s.live_bytes);
    final[static_cast<std::size_t>(s.rank)] = s.live_bytes;
  }
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(first[r], final[r]);  // only persistent buffers live at both ends
    EXPECT_LE(peak[r], program.class_of(static_cast<int>(r)).arena_bytes[0]);
    EXPECT_GT(peak[r], first[r]);
  }
}

}  // namespace
}  // namespace bayplan::sim
