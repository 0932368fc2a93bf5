#include "simulator/engine/simulate.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/simulator/tiny_costs.h"

namespace bayplan::sim {
namespace {

using bayplan::test::lower_tiny;
using bayplan::test::TinyPlan;
using test::cluster_of;
using test::stage_costs;

std::int64_t step_of(const Program& program, const Cluster& cluster, const CostModel& costs) {
  SimulateOptions options;
  options.interval = false;
  const auto result = simulate(program, cluster, costs, options);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result->timeline.step_times.back().value;
}

TEST(Simulate, OneFOneBTakesItsTextbookTime) {
  // 4 stages, 8 micro-batches, F=1 B=2: m(F+B) + (p-1)(F+B) = 8·3 + 3·3 = 33.
  const Program program = lower_tiny({.pp = 4, .micro_batches = 8, .layers = 4});
  EXPECT_EQ(step_of(program, cluster_of(DeviceClass::kGpu, 4), stage_costs(program, {})), 33);
  EXPECT_EQ(step_of(program, cluster_of(DeviceClass::kCpu, 4), stage_costs(program, {})), 33);
}

TEST(Simulate, GPipeHasTheSameBubbleAsOneFOneB) {
  // (m+p-1)F + (m+p-1)B = 11·1 + 11·2 = 33.
  const Program program =
      lower_tiny({.pp = 4, .micro_batches = 8, .schedule = "gpipe", .layers = 4});
  EXPECT_EQ(step_of(program, cluster_of(DeviceClass::kGpu, 4), stage_costs(program, {})), 33);
}

TEST(Simulate, SingleRankAddsUpItsWork) {
  // 5 micro-batches of F=1 and B=2, then one update per parameter group.
  const Program program = lower_tiny({.micro_batches = 5, .layers = 2});
  std::int64_t groups = 0;
  for (const Instruction& i : program.list(0, ProgramKind::kTrainStep).instructions) {
    groups += i.kind == InstructionKind::kOptimizerStep ? 1 : 0;
  }
  EXPECT_EQ(
      step_of(program, cluster_of(DeviceClass::kGpu, 1), stage_costs(program, {.optimizer = 10})),
      5 * 3 + 10 * groups);
}

TEST(Simulate, TimesPastTheClockAreRefused) {
  const Program program = lower_tiny({.pp = 2, .layers = 2});
  // 2 ranks of one forward each: 2 · 6e17 ps pass the limit of 1e18, 2 · 4e17 do not.
  for (const auto& [forward, refused] : {std::pair{600, true}, std::pair{400, false}}) {
    const CostModel costs =
        stage_costs(program, {.forward = forward * 1'000'000'000'000'000, .backward = 0});
    const auto result = simulate(program, cluster_of(DeviceClass::kGpu, 2), costs, {.steps = 1});
    EXPECT_EQ(result.ok(), !refused) << forward;
    if (!result.ok()) {
      EXPECT_EQ(result.error().code, "time-overflow");
    }
  }
  EXPECT_EQ(to_picoseconds(Seconds(1e300)).value, 4'000'000'000'000'000'000);
  EXPECT_EQ(to_picoseconds(Seconds(0.0 / 0.0)).value, 4'000'000'000'000'000'000);
}

TEST(Simulate, MessagesDelayTheirReceiver) {
  // Two stages, one micro-batch, messages of 7: F, 7, F, B, 7, B = 1+7+1+2+7+2 = 20.
  const Program program = lower_tiny({.pp = 2, .micro_batches = 1, .layers = 2});
  EXPECT_EQ(
      step_of(program, cluster_of(DeviceClass::kGpu, 2), stage_costs(program, {.message = 7})), 20);
}

TEST(Simulate, CollectivesWaitForTheSlowestMember) {
  // Two replicas without pipeline. After the forward of 1 the head's gradients are done at once
  // (its time sits on the first unit), and collectives of 5 follow one another from there on: the
  // gradients of every group, which hide the backward of 2, then the norm.
  const Program program = lower_tiny({.dp = 2, .micro_batches = 1, .layers = 1});
  std::int64_t collectives = 0;
  for (const Instruction& i : program.list(0, ProgramKind::kTrainStep).instructions) {
    collectives += is_collective(i.kind) ? 1 : 0;
  }
  EXPECT_EQ(
      step_of(program, cluster_of(DeviceClass::kGpu, 2), stage_costs(program, {.collective = 5})),
      1 + 5 * collectives);
}

TEST(Simulate, StepsStartTogetherAndTakeTheSameTime) {
  const Program program =
      lower_tiny({.pp = 2, .dp = 2, .micro_batches = 3, .zero = 1, .layers = 2});
  SimulateOptions options;
  options.steps = 3;
  const auto result = simulate(program, cluster_of(DeviceClass::kGpu, 4),
                               stage_costs(program, {.message = 1, .collective = 2}), options);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->timeline.step_times.size(), 3u);
  EXPECT_EQ(result->timeline.step_times[0], result->timeline.step_times[1]);
  EXPECT_EQ(result->timeline.step_times[1], result->timeline.step_times[2]);
}

TEST(Simulate, RanksOfACpuNodeShareItsCores) {
  // Four replicas on two cores, nothing but compute of 3 per micro-batch: half speed, 2 · 3 · 2.
  const Program program = lower_tiny({.dp = 4, .micro_batches = 2, .layers = 1});
  CostModel costs = stage_costs(program, {.forward = 1'000'000, .backward = 2'000'000});
  costs.nodes.resize(1);
  costs.nodes[0].cores = 2;
  const std::int64_t shared = step_of(program, cluster_of(DeviceClass::kCpu, 4, 2), costs);
  EXPECT_NEAR(static_cast<double>(shared), 12e6, 100.0);
  costs.nodes[0].cores = 4;
  EXPECT_NEAR(static_cast<double>(step_of(program, cluster_of(DeviceClass::kCpu, 4, 4), costs)),
              6e6, 100.0);
}

TEST(Simulate, ReceiverCopiesMessagesOnItsCore) {
  // As MessagesDelayTheirReceiver, on a node with a core for everybody: the same 20 units.
  const Program program = lower_tiny({.pp = 2, .micro_batches = 1, .layers = 2});
  CostModel costs = stage_costs(program, {.forward = 1'000'000, .backward = 2'000'000});
  costs.communication = [](const CommunicationCall& call) {
    CommunicationCost cost;
    cost.work = Picoseconds(is_collective(call.kind) ? 0 : 7'000'000);
    cost.receiver_only = !is_collective(call.kind);
    return cost;
  };
  costs.nodes.resize(1);
  costs.nodes[0].cores = 4;
  EXPECT_NEAR(static_cast<double>(step_of(program, cluster_of(DeviceClass::kCpu, 2, 4), costs)),
              20e6, 100.0);
}

TEST(Simulate, LaunchesLimitAnAsynchronousDevice) {
  // One rank whose kernels take no time: the step lasts as long as the host needs to issue it.
  const Program program = lower_tiny({.micro_batches = 4, .layers = 2});
  CostModel costs = stage_costs(program, {.forward = 0, .backward = 0});
  std::int64_t computes = 0;
  for (const Instruction& i : program.list(0, ProgramKind::kTrainStep).instructions) {
    computes += i.unit.valid() ? 1 : 0;
  }
  costs.compute = [](int, const InstructionList&, const Instruction& i) {
    ComputeCost cost;
    cost.issue = Picoseconds(i.unit.valid() ? 10 : 0);
    return cost;
  };
  SimulateOptions options;
  const auto result = simulate(program, cluster_of(DeviceClass::kGpu, 1), costs, options);
  ASSERT_TRUE(result.ok());
  std::int64_t last = 0;
  for (const TimelineEvent& e : result->timeline.events) last = std::max(last, e.end.value);
  EXPECT_EQ(last, 10 * computes);
}

TEST(Simulate, IntervalEnclosesTheStep) {
  const Program program = lower_tiny({.pp = 2, .micro_batches = 4, .layers = 2});
  CostModel costs = stage_costs(program, {.forward = 1000, .backward = 2000, .message = 100});
  costs.uncertainty = {0.2, 0.5, Provenance::kCalibrated};
  const auto result = simulate(program, cluster_of(DeviceClass::kGpu, 2), costs);
  ASSERT_TRUE(result.ok());
  EXPECT_LT(result->step_time.low, result->step_time.mid);
  EXPECT_LT(result->step_time.mid, result->step_time.high);
  // All compute: (4+1)·3000 within 20 %, messages within 50 %.
  EXPECT_GE(result->step_time.low.value, 0.5 * result->step_time.mid.value);
  EXPECT_LE(result->step_time.high.value, 1.5 * result->step_time.mid.value);
  EXPECT_EQ(result->provenance, Provenance::kCalibrated);
}

TEST(Simulate, TheSameInputGivesTheSameTimeline) {
  const Program program =
      lower_tiny({.pp = 3, .dp = 2, .micro_batches = 4, .zero = 1, .layers = 3});
  CostModel costs = stage_costs(
      program,
      {.forward = 1'234'567, .backward = 2'345'678, .message = 345'678, .collective = 45'678});
  costs.nodes.resize(1);
  costs.nodes[0].cores = 2;
  const Cluster cluster = cluster_of(DeviceClass::kCpu, 6, 2);
  const auto a = simulate(program, cluster, costs);
  const auto b = simulate(program, cluster, costs);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->timeline.events, b->timeline.events);
  EXPECT_EQ(a->step_time.high, b->step_time.high);
}

TEST(Simulate, EventsKeepTheSemantics) {
  // Random programs, both styles: ready <= start <= end, streams in order, waits done before.
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const TinyPlan plan = bayplan::test::random_plan(seed);
    const Program program = lower_tiny(plan);
    for (const DeviceClass device : {DeviceClass::kGpu, DeviceClass::kCpu}) {
      CostModel costs = unit_costs();
      costs.nodes.resize(device == DeviceClass::kCpu ? 1 : 0);
      if (device == DeviceClass::kCpu) costs.nodes[0].cores = 2;
      const auto result = simulate(program, cluster_of(device, program.world_size(), 2), costs);
      ASSERT_TRUE(result.ok()) << bayplan::test::to_string(plan) << ": " << result.error().message;
      const auto& events = result->timeline.events;
      std::size_t base = 0;
      for (int rank = 0; rank < program.world_size(); ++rank) {
        const InstructionList& list = program.list(rank, ProgramKind::kTrainStep);
        std::array<std::int64_t, kStreamCount> stream_end{};
        for (std::size_t i = 0; i < list.instructions.size(); ++i) {
          const TimelineEvent& e = events[base + i];
          ASSERT_EQ(e.rank, rank);
          ASSERT_EQ(e.instruction, InstructionId(i));
          EXPECT_LE(e.ready, e.start);
          EXPECT_LE(e.start, e.end);
          const Instruction& instruction = list.instructions[i];
          std::int64_t& last = stream_end[static_cast<std::size_t>(instruction.stream)];
          const bool same_call =
              i > 0 && instruction.fuse >= 0 && list.instructions[i - 1].fuse == instruction.fuse;
          EXPECT_TRUE(same_call || e.start.value >= last);
          last = std::max(last, e.end.value);
          for (std::int32_t w = instruction.waits.begin; w < instruction.waits.end; ++w) {
            const std::size_t awaited = list.waits[static_cast<std::size_t>(w)].index();
            EXPECT_GE(e.start, events[base + awaited].end);
          }
        }
        base += list.instructions.size();
      }
    }
  }
}

TEST(Simulate, NamesTheRanksThatDeadlock) {
  Program program = lower_tiny({.pp = 2, .micro_batches = 1, .layers = 2});
  InstructionList& list =
      program.classes[1].programs[static_cast<std::size_t>(ProgramKind::kTrainStep)];
  for (Instruction& i : list.instructions) {
    if (i.kind == InstructionKind::kRecvActivation)
      i.unit = UnitId(99);  // another tensor than is sent
  }
  const auto result = simulate(program, cluster_of(DeviceClass::kGpu, 2), unit_costs());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, "deadlock");
  EXPECT_NE(result.error().message.find("rank 0 waits"), std::string::npos)
      << result.error().message;
  EXPECT_NE(result.error().message.find("send_act"), std::string::npos) << result.error().message;
}

TEST(Simulate, RefusesAClusterWithTooFewDevices) {
  const Program program = lower_tiny({.pp = 2, .micro_batches = 1, .layers = 2});
  const auto result = simulate(program, cluster_of(DeviceClass::kGpu, 1), unit_costs());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, "cluster-too-small");
}

}  // namespace
}  // namespace bayplan::sim
