// A schedule that the library does not know, from its definition to a verified program: nothing
// else has to be written for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "planner/program/verify.h"
#include "planner/schedule/schedule.h"
#include "tests/unit/program/tiny_plans.h"

namespace bayplan {
namespace {

/// GPipe in groups of two micro-batches: half of GPipe's memory for twice its bubble.
Schedule pairs(const ScheduleShape& shape) {
  Schedule schedule;
  for (int r = 0; r < shape.ranks; ++r) {
    std::vector<ScheduleOp> ops;
    for (int first = 0; first < shape.micro_batches; first += 2) {
      const int end = std::min(first + 2, shape.micro_batches);
      for (int j = first; j < end; ++j) ops.push_back({ScheduleOpKind::kForward, r, j});
      for (int j = first; j < end; ++j) ops.push_back({ScheduleOpKind::kBackward, r, j});
    }
    schedule.rank_ops.push_back(std::move(ops));
    schedule.stage_rank.push_back(r);
  }
  return schedule;
}

constexpr std::array<ScheduleSpec, 1> kKnown = {
    {{"pairs", "two micro-batches at a time", 1, 1, pairs}}};

TEST(OwnSchedule, IsLoweredAndVerified) {
  const test::TinyShape shape{.layers = 4, .pp = 3, .dp = 2, .micro_batches = 5, .zero = 1};
  const ModelGraph graph = test::tiny_graph(shape);
  Plan plan = test::tiny_plan(shape, graph);
  plan.schedule = "pairs";
  const Result<Program> program = lower(plan, graph, test::tiny_cluster(6), kKnown);
  ASSERT_TRUE(program.ok()) << program.error().message;
  EXPECT_TRUE(verify(*program).empty());
  EXPECT_EQ(lower(plan, graph, test::tiny_cluster(6)).error().code, "unknown-schedule");
}

}  // namespace
}  // namespace bayplan
