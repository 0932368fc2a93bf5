#include "simulator/memory/arena_replay.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "simulator/engine/simulate.h"
#include "tests/unit/simulator/tiny_costs.h"

namespace bayplan::sim {
namespace {

using bayplan::test::lower_tiny;
using bayplan::test::random_plan;

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
      for (const LiveChange& change : replay_arena(c, static_cast<ProgramKind>(k)).changes)
        live += change.bytes;
      EXPECT_EQ(live, 0);
    }
  }
}

/// Peak of what lives within one step, first stage of two.
std::int64_t transient_peak(const std::string& schedule, int micro_batches) {
  const Program program =
      lower_tiny({.pp = 2, .micro_batches = micro_batches, .schedule = schedule, .layers = 2});
  const ArenaReplay replay = replay_arena(program.classes[0], ProgramKind::kTrainStep);
  return replay.memory.peak_live[0] - replay.persistent[0];
}

TEST(ArenaReplay, OneFOneBMemoryDoesNotGrowWithMicroBatches) {
  // 1F1B: stage r of p keeps at most p - r micro-batches; GPipe keeps all of them.
  EXPECT_EQ(transient_peak("1f1b", 4), transient_peak("1f1b", 8));
  EXPECT_GT(transient_peak("gpipe", 8), transient_peak("gpipe", 4));
  EXPECT_GT(transient_peak("gpipe", 4), transient_peak("1f1b", 4));
}

TEST(ArenaReplay, SamplesFollowTheTimeline) {
  const Program program = lower_tiny({.pp = 2, .micro_batches = 4, .layers = 2});
  SimulateOptions options;
  const auto result =
      simulate(program, test::cluster_of(DeviceClass::kGpu, 2), unit_costs(), options);
  ASSERT_TRUE(result.ok());
  std::int64_t last_time = -1;
  std::int32_t last_rank = -1;
  std::vector<std::int64_t> peak(2, 0), final(2, 0);
  for (const MemorySample& s : result->timeline.memory) {
    if (s.rank != last_rank) last_time = -1;
    EXPECT_GT(s.time.value, last_time);
    last_time = s.time.value;
    last_rank = s.rank;
    std::int64_t& p = peak[static_cast<std::size_t>(s.rank)];
    p = std::max(p, s.live_bytes);
    final[static_cast<std::size_t>(s.rank)] = s.live_bytes;
  }
  for (std::size_t r = 0; r < 2; ++r) {
    const RankClass& c = program.class_of(static_cast<int>(r));
    // Only persistent buffers live at the end.
    EXPECT_EQ(final[r], replay_arena(c, ProgramKind::kTrainStep).persistent[0]);
    EXPECT_LE(peak[r], c.arena_bytes[0]);
    EXPECT_GT(peak[r], final[r]);
  }
}

}  // namespace
}  // namespace bayplan::sim
