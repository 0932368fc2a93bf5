// Simulator and executor read the same Program: with unit costs on one side and the null device on
// the other, every rank issues the same calls in the same order, groups them alike, and has the
// same bytes alive behind every instruction.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "executor/comm/local.h"
#include "executor/comm/recording.h"
#include "executor/device_null.h"
#include "executor/rank_runner.h"
#include "simulator/cost/cost_model.h"
#include "simulator/engine/simulate.h"
#include "simulator/memory/arena_replay.h"
#include "tests/property/random_program.h"

namespace bayplan {
namespace {

using test::lower_tiny;
using test::random_plan;
using test::TinyPlan;

constexpr int kRandomPlans = 500;

struct ExecutedRank {
  std::array<exec::ProgramTrace, kProgramKindCount> traces;
  std::array<std::size_t, kProgramKindCount> calls_before{};  // recorded before each program
  std::vector<exec::RecordedCall> calls;
  std::array<std::int64_t, kTierCount> high_water{};
  std::array<std::int64_t, kTierCount> live_at_end{};
  std::string failure;
};

/// All four programs on all ranks; ranks are threads that really meet, no data moves.
std::vector<ExecutedRank> execute(const Program& program) {
  const int world = program.world_size();
  const auto meeting = exec::make_local_communicators(world, {.deadline_seconds = 20});
  std::vector<ExecutedRank> ranks(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      ExecutedRank& out = ranks[static_cast<std::size_t>(r)];
      try {
        exec::NullDevice device;
        exec::RecordingCommunicator recorder(r, world, meeting[static_cast<std::size_t>(r)].get());
        exec::RankRunner runner(program, r, device, recorder, {}, {});
        for (std::size_t k = 0; k < kProgramKindCount; ++k) {
          out.calls_before[k] = recorder.calls().size();
          out.traces[k] = runner.run({.kind = static_cast<ProgramKind>(k)});
        }
        out.calls = recorder.calls();
        for (std::size_t t = 0; t < kTierCount; ++t) {
          out.high_water[t] = runner.memory().high_water(static_cast<Tier>(t));
          out.live_at_end[t] = runner.memory().live(static_cast<Tier>(t));
        }
      } catch (const std::exception& e) {
        out.failure = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return ranks;
}

Cluster cpu_cluster(int devices) {
  Cluster cluster;
  cluster.groups.emplace_back();
  cluster.groups.back().devices_per_node = devices;
  cluster.groups.back().device.device_class = DeviceClass::kCpu;
  return cluster;
}

/// The recorded call that `issued` must have led to.
void expect_call(const Program& program, int rank, const InstructionList& list,
                 const sim::IssuedCall& issued, const exec::RecordedCall& recorded) {
  const Instruction& first = list.instructions[issued.first.index()];
  if (is_collective(first.kind)) {
    ASSERT_EQ(recorded.kind, exec::RecordedCall::Kind::kCollective);
    EXPECT_EQ(recorded.collective, first.kind);
    EXPECT_EQ(recorded.purpose, first.purpose);
    EXPECT_EQ(recorded.members, group_members(program, first.group, rank));
    const ByteInterval bytes = collective_payload(program, rank, list, first).bytes;
    EXPECT_EQ(recorded.bytes, bytes.end - bytes.begin);
    return;
  }
  ASSERT_EQ(recorded.kind, exec::RecordedCall::Kind::kExchange);
  ASSERT_EQ(recorded.messages.size(), static_cast<std::size_t>(issued.count));
  for (std::size_t m = 0; m < recorded.messages.size(); ++m) {
    const Instruction& i = list.instructions[issued.first.index() + m];
    EXPECT_EQ(recorded.messages[m].kind, i.kind);
    EXPECT_EQ(recorded.messages[m].is_send, is_send(i.kind));
    EXPECT_EQ(recorded.messages[m].peer, peer_rank(program, rank, i.peer_stage));
    const ByteInterval bytes = collective_payload(program, rank, list, i).bytes;
    EXPECT_EQ(recorded.messages[m].bytes, bytes.end - bytes.begin);
  }
}

void expect_same_behaviour(const Program& program) {
  const std::vector<ExecutedRank> executed = execute(program);
  const Cluster cluster = cpu_cluster(program.world_size());
  for (std::size_t k = 0; k < kProgramKindCount; ++k) {
    const auto kind = static_cast<ProgramKind>(k);
    sim::SimulateOptions options;
    options.program = kind;
    options.steps = 1;
    options.interval = false;
    const auto simulated = sim::simulate(program, cluster, sim::unit_costs(), options);
    ASSERT_TRUE(simulated.ok()) << simulated.error().message;
    for (int rank = 0; rank < program.world_size(); ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank) + " " + std::string(program_kind_name(kind)));
      const ExecutedRank& mine = executed[static_cast<std::size_t>(rank)];
      ASSERT_EQ(mine.failure, "");
      const InstructionList& list = program.list(rank, kind);

      // Same calls, same order.
      const std::vector<sim::IssuedCall>& issued =
          simulated->issued[static_cast<std::size_t>(rank)];
      ASSERT_EQ(mine.traces[k].issued.size(), issued.size());
      std::size_t next = mine.calls_before[k];
      for (std::size_t c = 0; c < issued.size(); ++c) {
        ASSERT_EQ(mine.traces[k].issued[c].first, issued[c].first);
        ASSERT_EQ(mine.traces[k].issued[c].count, issued[c].count);
        if (!is_matched(list.instructions[issued[c].first.index()].kind)) continue;
        ASSERT_LT(next, mine.calls.size());
        expect_call(program, rank, list, issued[c], mine.calls[next++]);
      }
      EXPECT_EQ(next, k + 1 < kProgramKindCount ? mine.calls_before[k + 1] : mine.calls.size());

      // Same bytes come to life and end with the same instruction.
      std::vector<exec::LiveBytesChange> live = mine.traces[k].live;
      std::stable_sort(live.begin(), live.end(),
                       [](const auto& a, const auto& b) { return a.instruction < b.instruction; });
      const sim::ArenaReplay replay = sim::replay_arena(program.class_of(rank), kind);
      ASSERT_EQ(live.size(), replay.changes.size());
      for (std::size_t c = 0; c < live.size(); ++c) {
        ASSERT_EQ(live[c].instruction, replay.changes[c].instruction);
        ASSERT_EQ(live[c].tier, replay.changes[c].tier);
        ASSERT_EQ(live[c].bytes, replay.changes[c].bytes);
      }
      EXPECT_EQ(mine.live_at_end, replay.persistent);
    }
  }
  for (int rank = 0; rank < program.world_size(); ++rank) {
    const ExecutedRank& mine = executed[static_cast<std::size_t>(rank)];
    EXPECT_EQ(mine.high_water, program.class_of(rank).arena_bytes);
    EXPECT_EQ(mine.high_water, sim::replay_extent(program.class_of(rank)));
  }
}

/// Plans that golden files and documents use, so that a failure here has a familiar name.
std::vector<TinyPlan> golden_plans() {
  return {{},
          {.micro_batches = 4},
          {.dp = 2, .micro_batches = 2, .zero = 1},
          {.pp = 2, .micro_batches = 4, .schedule = "gpipe"},
          {.pp = 2, .micro_batches = 4, .schedule = "1f1b"},
          {.pp = 2, .dp = 2, .micro_batches = 4, .zero = 1, .tied = true},
          {.pp = 4, .micro_batches = 8, .layers = 4},
          {.pp = 4,
           .dp = 2,
           .micro_batches = 2,
           .tied = true,
           .llama = true,
           .layers = 4,
           .bf16 = true}};
}

TEST(Conformance, GoldenPlansBehaveAlikeInSimulatorAndExecutor) {
  for (const TinyPlan& plan : golden_plans()) {
    SCOPED_TRACE(to_string(plan));
    expect_same_behaviour(lower_tiny(plan));
    if (HasFatalFailure()) return;
  }
}

TEST(Conformance, RandomPlansBehaveAlikeInSimulatorAndExecutor) {
  for (std::uint64_t seed = 0; seed < kRandomPlans; ++seed) {
    const TinyPlan plan = random_plan(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + to_string(plan));
    expect_same_behaviour(lower_tiny(plan));
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

}  // namespace
}  // namespace bayplan
