// Op tables of the schedules, played on ideal ranks: an op starts when its rank is free and its
// producers are done; messages are free. F = I = W = 1 and B = 2 unless said otherwise; with
// several chunks these are times of one chunk.
#include "planner/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "planner/schedule/table.h"
#include "planner/schedule/timing.h"

namespace bayplan {
namespace {

Schedule make(std::string_view name, int p, int m, int v = 1) {
  return make_schedule(name, ScheduleShape{p, v, m}).value();
}

/// F, and B as input and weight part, last this long.
ScheduleTiming play(const Schedule& schedule, int forward = 1, int input = 1, int weight = 1) {
  return time_schedule(schedule, {forward, input, weight}).value();
}

/// Idle time of a rank between its first op and its last.
std::int64_t idle(const Schedule& schedule, std::size_t rank) {
  const ScheduleTiming timing = play(schedule);
  std::int64_t busy = 0;
  for (const OpTime& t : timing.ops[rank]) busy += t.end - t.start;
  return timing.ops[rank].back().end - timing.ops[rank].front().start - busy;
}

TEST(GPipe, StepIsMicroBatchesPlusFillTimesForwardAndBackward) {
  // 4 stages, 8 micro-batches, F=1 B=2: (8 + 3) * 3 = 33
  EXPECT_EQ(play(make("gpipe", 4, 8)).makespan, 33);
  // 1 stage: no bubble, 8 * 3 = 24
  EXPECT_EQ(play(make("gpipe", 1, 8)).makespan, 24);
}

TEST(GPipe, EveryStageHoldsEveryMicroBatch) {
  EXPECT_EQ(play(make("gpipe", 4, 8)).in_flight, (std::vector<int>{8, 8, 8, 8}));
}

TEST(OneFOneB, StepEqualsGPipeWithEqualStages) {
  // 4 stages, 8 micro-batches, F=1 B=2: 8*3 + 3*3 = 33
  EXPECT_EQ(play(make("1f1b", 4, 8)).makespan, 33);
  // F=2 B=3: 8*5 + 3*5 = 55
  EXPECT_EQ(play(make("1f1b", 4, 8), 2, 2, 1).makespan, 55);
}

TEST(OneFOneB, StageHoldsItsDistanceToTheEnd) {
  // min(m, p - r) with p = 4: m = 8 gives 4 3 2 1, m = 2 gives 2 2 2 1
  EXPECT_EQ(play(make("1f1b", 4, 8)).in_flight, (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(play(make("1f1b", 4, 2)).in_flight, (std::vector<int>{2, 2, 2, 1}));
}

TEST(OneFOneB, OrderOfTwoStagesAndThreeMicroBatches) {
  const Schedule schedule = make("1f1b", 2, 3);
  auto text = [&](int rank) {
    std::string s;
    for (const ScheduleOp& op : schedule.rank_ops[static_cast<std::size_t>(rank)]) {
      s += (op.kind == ScheduleOpKind::kForward ? 'F' : 'B') + std::to_string(op.micro_batch) + ' ';
    }
    return s;
  };
  // Stage 0 warms up with p-1-0 = 1 forward; the last stage with none.
  EXPECT_EQ(text(0), "F0 F1 B0 F2 B1 B2 ");
  EXPECT_EQ(text(1), "F0 B0 F1 B1 F2 B2 ");
}

TEST(Interleaved, BubbleIsThatOfOneChunk) {
  // v m F+B of chunk work, and (p-1)(F+B) of bubble with m a multiple of p:
  // p=4 m=8 v=2: 2*8*3 + 3*3 = 57; p=2 m=4 v=3: 3*4*3 + 1*3 = 39; v=1 is 1F1B: 8*3 + 9 = 33.
  EXPECT_EQ(play(make("interleaved", 4, 8, 2)).makespan, 57);
  EXPECT_EQ(play(make("interleaved", 2, 4, 3)).makespan, 39);
  EXPECT_EQ(make("interleaved", 4, 8, 1).rank_ops, make("1f1b", 4, 8).rank_ops);
}

TEST(Interleaved, RankZeroHoldsItsWarmUpAndOne) {
  // Warm-up 2(p-1) + (v-1)p forwards and the steady one: p=4 v=2: 6 + 4 + 1 = 11 chunks, and the
  // last rank (v-1)p + 1 = 5.
  const std::vector<int> held = play(make("interleaved", 4, 8, 2)).in_flight;
  EXPECT_EQ(held.front(), 11);
  EXPECT_EQ(held.back(), 5);
}

TEST(BreadthFirst, BubbleIsThatOfOneChunkAndAllIsHeld) {
  // p=4 m=8 v=2: 2*8*3 + 3*3 = 57, and 2*8 chunks held.
  const ScheduleTiming timing = play(make("breadth-first", 4, 8, 2));
  EXPECT_EQ(timing.makespan, 57);
  EXPECT_EQ(timing.in_flight, (std::vector<int>{16, 16, 16, 16}));
  EXPECT_EQ(make("breadth-first", 4, 8, 1).rank_ops, make("gpipe", 4, 8).rank_ops);
}

TEST(ZeroBubbleH1, BubbleIsOneForwardPerRankAndMemoryThatOf1F1B) {
  // 3m + (p-1)(F+I-W): p=4 m=8: 24 + 3 = 27; p=8 m=16: 48 + 7 = 55; m=p=4: 12 + 3 = 15.
  EXPECT_EQ(play(make("zb-h1", 4, 8)).makespan, 27);
  EXPECT_EQ(play(make("zb-h1", 8, 16)).makespan, 55);
  EXPECT_EQ(play(make("zb-h1", 4, 4)).makespan, 15);
  EXPECT_EQ(play(make("zb-h1", 4, 8)).in_flight, (std::vector<int>{4, 4, 4, 4}));
  // One micro-batch is a chain: p forwards, p input gradients, one weight gradient.
  EXPECT_EQ(play(make("zb-h1", 4, 1)).makespan, 9);
}

TEST(ZeroBubbleH2, NoRankIdlesBetweenItsFirstForwardAndItsLastWeight) {
  for (const auto& [p, m] : {std::pair{2, 3}, {4, 7}, {4, 12}, {8, 15}}) {
    const Schedule schedule = make("zb-h2", p, m);
    for (int r = 0; r < p; ++r) EXPECT_EQ(idle(schedule, static_cast<std::size_t>(r)), 0) << p;
    // The last rank starts p-1 late and works 3m; everybody holds 2p-1 micro-batches.
    EXPECT_EQ(play(schedule).makespan, 3 * m + p - 1);
    EXPECT_EQ(play(schedule).in_flight, std::vector<int>(static_cast<std::size_t>(p), 2 * p - 1));
  }
}

TEST(Zbv, BubbleIsTheFillOnlyAndMemoryThatOf1F1B) {
  // 6m chunk ops per rank and the p-1 ticks until the last rank starts.
  EXPECT_EQ(play(make("zbv", 2, 4, 2)).makespan, 25);
  EXPECT_EQ(play(make("zbv", 4, 8, 2)).makespan, 51);
  EXPECT_EQ(play(make("zbv", 8, 16, 2)).makespan, 103);
  // 2p half-stage activations are p whole ones.
  EXPECT_EQ(play(make("zbv", 4, 8, 2)).in_flight, (std::vector<int>{8, 8, 8, 8}));
}

TEST(DualPipeV, BubbleIsTheFillOnly) {
  // 6m + p-1 for m >= 2p, with 2p+1 stage activations held.
  EXPECT_EQ(play(make("dualpipev", 2, 4, 2)).makespan, 25);
  EXPECT_EQ(play(make("dualpipev", 4, 12, 2)).makespan, 75);
  EXPECT_EQ(play(make("dualpipev", 4, 8, 2)).in_flight, (std::vector<int>{9, 9, 9, 9}));
}

TEST(Schedules, AreWholeAndFreeOfDeadlockInEveryShape) {
  // make_schedule checks each: every op once, weight gradients ascending, nothing waits for ever.
  for (const ScheduleSpec& spec : schedules()) {
    for (int p = 1; p <= 16; ++p) {
      for (int v = spec.min_chunks; v <= std::min(spec.max_chunks, 4); ++v) {
        for (int m : {1, 2, 3, 5, 8, 13, 16, 31, 33, 64}) {
          const Result<Schedule> schedule = make_schedule(spec.name, {p, v, m});
          ASSERT_TRUE(schedule.ok()) << spec.name << " p=" << p << " v=" << v << " m=" << m << ": "
                                     << schedule.error().message;
        }
      }
    }
  }
}

TEST(Schedules, ForwardsAndInputGradientsAscendToo) {
  for (const ScheduleSpec& spec : schedules()) {
    const Schedule schedule = make(spec.name, 3, 7, spec.min_chunks);
    for (const auto& ops : schedule.rank_ops) {
      std::map<std::pair<ScheduleOpKind, int>, int> last;
      for (const ScheduleOp& op : ops) {
        const auto [it, first] = last.emplace(std::pair{op.kind, op.stage}, -1);
        EXPECT_GT(op.micro_batch, it->second) << spec.name;
        it->second = op.micro_batch;
      }
    }
  }
}

TEST(CheckSchedule, NamesWhatIsWrong) {
  const auto code = [](std::vector<std::string> lines, int m) {
    return check_schedule(schedule_of_table(lines).value(), m).error().code;
  };
  EXPECT_EQ(code({"0F0,0F1,0B0"}, 2), "schedule-incomplete");
  EXPECT_EQ(code({"0F0,0F0,0B0"}, 1), "schedule-incomplete");
  EXPECT_EQ(code({"0F0,0I0"}, 1), "schedule-incomplete");
  EXPECT_EQ(code({"0F0,0B0,0F1,0B1"}, 1), "schedule-incomplete");
  EXPECT_EQ(code({"0F0,0F1,0B1,0B0"}, 2), "schedule-order");
  EXPECT_EQ(code({"0F0,0F1,0I1,0I0,0W1,0W0"}, 2), "schedule-order");
  EXPECT_EQ(code({"0B0,0F0"}, 1), "schedule-deadlock");
  EXPECT_EQ(code({"0F0,0W0,0I0"}, 1), "schedule-deadlock");
  // Each rank waits for the other's second op.
  EXPECT_EQ(code({"0F0,0B0,0F1,0B1", "1F1,1B1,1F0,1B0"}, 2), "schedule-order");
  EXPECT_EQ(code({"0F0,0I0,0F1,0I1,0W0,0W1", "1F1,1I1,1F0,1I0,1W0,1W1"}, 2), "schedule-deadlock");
}

TEST(ScheduleTable, RoundTripsEverySchedule) {
  for (const ScheduleSpec& spec : schedules()) {
    const Schedule schedule = make(spec.name, 3, 4, spec.min_chunks);
    const Schedule read = schedule_of_table(table_lines(schedule)).value();
    EXPECT_EQ(read.rank_ops, schedule.rank_ops) << spec.name;
    EXPECT_EQ(read.stage_rank, schedule.stage_rank) << spec.name;
  }
}

TEST(ScheduleTable, ReadsIdleCellsPairsAndLineEnds) {
  const auto lines = split_table("0F0,,0F1, (0B0;0F2)OVERLAP_F_B ,0I1\r\n,1F0\n\n");
  ASSERT_EQ(lines.size(), 2U);
  const Schedule schedule = schedule_of_table(lines).value();
  EXPECT_EQ(table_lines(schedule), (std::vector<std::string>{"0F0,0F1,0B0,0F2,0I1", "1F0"}));
}

TEST(ScheduleTable, BadCellsAreNamed) {
  for (const char* line : {"0F", "F0", "0X0", "-1F0", "0F0 1F0", "(0F0;0B0)", "(0F0)OVERLAP_F_B",
                           "0F99999999999", "0f0", "0F0,1F0,3F0"}) {
    const auto schedule = schedule_of_table(std::vector<std::string>{line});
    ASSERT_FALSE(schedule.ok()) << line;
    EXPECT_EQ(schedule.error().code, "bad-schedule-table") << line;
  }
  const auto twice = schedule_of_table(std::vector<std::string>{"0F0,0B0", "0F1"});
  EXPECT_EQ(twice.error().where, "--schedule, line 2");
}

TEST(Schedules, UnknownNameListsTheKnownOnes) {
  const Result<Schedule> schedule = make_schedule("1f1", ScheduleShape{2, 1, 2});
  ASSERT_FALSE(schedule.ok());
  EXPECT_EQ(schedule.error().code, "unknown-schedule");
  EXPECT_EQ(
      schedule.error().hint,
      "known schedules: gpipe, 1f1b, interleaved, breadth-first, zb-h1, zb-h2, zbv, dualpipev");
}

TEST(Schedules, ChunksOutsideTheRangeAreRefused) {
  const Result<Schedule> schedule = make_schedule("1f1b", ScheduleShape{2, 2, 2});
  ASSERT_FALSE(schedule.ok());
  EXPECT_EQ(schedule.error().code, "unsupported-chunks");
  EXPECT_EQ(schedule.error().where, "--vp");
}

}  // namespace
}  // namespace bayplan
