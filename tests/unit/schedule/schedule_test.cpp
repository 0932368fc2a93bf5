// Op tables of the schedules, played on ideal ranks: an op starts when its rank is free and its
// producer is done; communication is free. F = 1, B = 2 unless said otherwise.
#include "planner/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace bayplan {
namespace {

struct Played {
  bool finished = false;
  int makespan = 0;
  std::vector<int> in_flight;  // per rank: maximum of forwards minus backwards
};

Played play(const Schedule& schedule, int forward, int backward) {
  const int stages = static_cast<int>(schedule.stage_rank.size());
  std::map<std::tuple<ScheduleOpKind, int, int>, int> done;  // (kind, stage, micro-batch) -> end
  std::vector<std::size_t> next(schedule.rank_ops.size(), 0);
  std::vector<int> free(schedule.rank_ops.size(), 0);
  Played played;
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t r = 0; r < schedule.rank_ops.size(); ++r) {
      while (next[r] < schedule.rank_ops[r].size()) {
        const ScheduleOp op = schedule.rank_ops[r][next[r]];
        int ready = 0;
        bool blocked = false;
        auto needs = [&](ScheduleOpKind kind, int stage) {
          const auto it = done.find({kind, stage, op.micro_batch});
          if (it == done.end()) {
            blocked = true;
          } else {
            ready = std::max(ready, it->second);
          }
        };
        if (op.kind == ScheduleOpKind::kForward) {
          if (op.stage > 0) needs(ScheduleOpKind::kForward, op.stage - 1);
        } else {
          needs(ScheduleOpKind::kForward, op.stage);
          if (op.stage + 1 < stages) needs(ScheduleOpKind::kBackward, op.stage + 1);
        }
        if (blocked) break;
        const int cost = op.kind == ScheduleOpKind::kForward ? forward : backward;
        free[r] = std::max(free[r], ready) + cost;
        done[{op.kind, op.stage, op.micro_batch}] = free[r];
        ++next[r];
        progress = true;
      }
    }
  }
  played.finished = true;
  for (std::size_t r = 0; r < schedule.rank_ops.size(); ++r) {
    played.finished = played.finished && next[r] == schedule.rank_ops[r].size();
    played.makespan = std::max(played.makespan, free[r]);
    int held = 0;
    int most = 0;
    for (const ScheduleOp& op : schedule.rank_ops[r]) {
      held += op.kind == ScheduleOpKind::kForward ? 1 : -1;
      most = std::max(most, held);
    }
    played.in_flight.push_back(most);
  }
  return played;
}

Schedule make(std::string_view name, int p, int m) {
  return make_schedule(name, ScheduleShape{p, 1, m}).value();
}

TEST(GPipe, StepIsMicroBatchesPlusFillTimesForwardAndBackward) {
  // 4 stages, 8 micro-batches, F=1 B=2: (8 + 3) * 3 = 33
  EXPECT_EQ(play(make("gpipe", 4, 8), 1, 2).makespan, 33);
  // 1 stage: no bubble, 8 * 3 = 24
  EXPECT_EQ(play(make("gpipe", 1, 8), 1, 2).makespan, 24);
}

TEST(GPipe, EveryStageHoldsEveryMicroBatch) {
  EXPECT_EQ(play(make("gpipe", 4, 8), 1, 2).in_flight, (std::vector<int>{8, 8, 8, 8}));
}

TEST(OneFOneB, StepEqualsGPipeWithEqualStages) {
  // 4 stages, 8 micro-batches, F=1 B=2: 8*3 + 3*3 = 33
  EXPECT_EQ(play(make("1f1b", 4, 8), 1, 2).makespan, 33);
  // F=2 B=3: 8*5 + 3*5 = 55
  EXPECT_EQ(play(make("1f1b", 4, 8), 2, 3).makespan, 55);
}

TEST(OneFOneB, StageHoldsItsDistanceToTheEnd) {
  // min(m, p - r) with p = 4: m = 8 gives 4 3 2 1, m = 2 gives 2 2 2 1
  EXPECT_EQ(play(make("1f1b", 4, 8), 1, 2).in_flight, (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(play(make("1f1b", 4, 2), 1, 2).in_flight, (std::vector<int>{2, 2, 2, 1}));
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

TEST(Schedules, EveryMicroBatchOncePerStageAndBackwardsAscend) {
  for (const ScheduleSpec& spec : schedules()) {
    for (int p = 1; p <= 6; ++p) {
      for (int m = 1; m <= 9; ++m) {
        const Schedule schedule = make(spec.name, p, m);
        ASSERT_TRUE(play(schedule, 1, 2).finished) << spec.name << " p=" << p << " m=" << m;
        for (int r = 0; r < p; ++r) {
          int forwards = 0;
          int backwards = 0;
          for (const ScheduleOp& op : schedule.rank_ops[static_cast<std::size_t>(r)]) {
            EXPECT_EQ(schedule.stage_rank[static_cast<std::size_t>(op.stage)], r);
            int& count = op.kind == ScheduleOpKind::kForward ? forwards : backwards;
            EXPECT_EQ(op.micro_batch, count++);
          }
          EXPECT_EQ(forwards, m);
          EXPECT_EQ(backwards, m);
        }
      }
    }
  }
}

TEST(Schedules, UnknownNameListsTheKnownOnes) {
  const Result<Schedule> schedule = make_schedule("1f1", ScheduleShape{2, 1, 2});
  ASSERT_FALSE(schedule.ok());
  EXPECT_EQ(schedule.error().code, "unknown-schedule");
  EXPECT_EQ(schedule.error().hint, "known schedules: gpipe, 1f1b");
}

TEST(Schedules, ChunksOutsideTheRangeAreRefused) {
  const Result<Schedule> schedule = make_schedule("1f1b", ScheduleShape{2, 2, 2});
  ASSERT_FALSE(schedule.ok());
  EXPECT_EQ(schedule.error().code, "unsupported-chunks");
  EXPECT_EQ(schedule.error().where, "--vp");
}

}  // namespace
}  // namespace bayplan
