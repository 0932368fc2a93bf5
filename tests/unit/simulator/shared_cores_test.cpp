#include "simulator/compute/shared_cores.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace bayplan::sim {
namespace {

/// Start time, work and threads of a task; slowdown when all cores are busy.
struct TaskPlan {
  std::int64_t start = 0;
  std::int64_t work = 0;
  std::int32_t threads = 1;
  double slowdown = 1.0;
};

/// When each task ends.
std::vector<std::int64_t> ends(const CpuNodeModel& node, const std::vector<TaskPlan>& tasks) {
  SharedCores cores(node);
  std::vector<std::int64_t> out(tasks.size(), -1);
  std::size_t next = 0;
  std::int64_t now = 0;
  for (;;) {
    const std::int64_t finish = cores.next_finish();
    const std::int64_t start = next < tasks.size() ? tasks[next].start : SharedCores::kNever;
    if (finish == SharedCores::kNever && start == SharedCores::kNever) return out;
    now = std::min(finish, start);
    cores.advance(now);
    std::uint64_t key = 0;
    while (cores.take_finished(key)) out[key] = now;
    for (; next < tasks.size() && tasks[next].start == now; ++next) {
      cores.start(tasks[next].work, tasks[next].threads, tasks[next].slowdown, next);
    }
  }
}

CpuNodeModel node(int cores) {
  CpuNodeModel n;
  n.cores = cores;
  return n;
}

constexpr std::int64_t kUnit = 1'000'000;  // 1 µs, so that rounding is out of sight

TEST(SharedCores, TasksWithACoreEachDoNotDisturbEachOther) {
  const auto t = ends(node(2), {{0, 10 * kUnit}, {0, 4 * kUnit}});
  EXPECT_NEAR(static_cast<double>(t[0]), 10.0 * kUnit, 2);
  EXPECT_NEAR(static_cast<double>(t[1]), 4.0 * kUnit, 2);
}

TEST(SharedCores, ThreeEqualTasksOnTwoCoresTakeHalfAsLongAgain) {
  // Each gets 2/3 of a core: 10 / (2/3) = 15.
  const auto t = ends(node(2), {{0, 10 * kUnit}, {0, 10 * kUnit}, {0, 10 * kUnit}});
  for (const std::int64_t end : t) EXPECT_NEAR(static_cast<double>(end), 15.0 * kUnit, 4);
}

TEST(SharedCores, RateRisesWhenATaskLeaves) {
  // One core. Until 6 both run at half speed: the short one has its 3 done, the long one 3 of 5;
  // alone it needs 2 more and ends at 8.
  const auto t = ends(node(1), {{0, 3 * kUnit}, {0, 5 * kUnit}});
  EXPECT_NEAR(static_cast<double>(t[0]), 6.0 * kUnit, 2);
  EXPECT_NEAR(static_cast<double>(t[1]), 8.0 * kUnit, 4);
}

TEST(SharedCores, RateFallsWhenATaskArrives) {
  // One core. 4 of 10 done when the second starts at 4; then half speed for both: the second's 3
  // take until 10, when the first has 7 done, and ends at 13.
  const auto t = ends(node(1), {{0, 10 * kUnit}, {4 * kUnit, 3 * kUnit}});
  EXPECT_NEAR(static_cast<double>(t[1]), 10.0 * kUnit, 4);
  EXPECT_NEAR(static_cast<double>(t[0]), 13.0 * kUnit, 4);
}

TEST(SharedCores, ThreadsOfATaskCountAsDemand) {
  // Two tasks of two threads on two cores: half speed.
  const auto t = ends(node(2), {{0, 5 * kUnit, 2}, {0, 5 * kUnit, 2}});
  EXPECT_NEAR(static_cast<double>(t[0]), 10.0 * kUnit, 2);
  EXPECT_NEAR(static_cast<double>(t[1]), 10.0 * kUnit, 2);
}

TEST(SharedCores, CrowdingSlowsDownByTheTasksOwnFactor) {
  // Both cores busy: a task with slowdown 2 takes twice its time, one with slowdown 1 does not.
  const auto t = ends(node(2), {{0, 4 * kUnit, 1, 2.0}, {0, 20 * kUnit, 1, 1.0}});
  EXPECT_NEAR(static_cast<double>(t[0]), 8.0 * kUnit, 8);
  EXPECT_NEAR(static_cast<double>(t[1]), 20.0 * kUnit, 4);
}

TEST(SharedCores, SlowdownThatFallsBetweenLanesIsExactWhenAllCoresAreBusy) {
  const auto t = ends(node(2), {{0, 10 * kUnit, 1, 1.3}, {0, 100 * kUnit}});
  EXPECT_NEAR(static_cast<double>(t[0]), 13.0 * kUnit, 8);
}

TEST(SharedCores, CrowdingTableScalesBetweenOneAndAllCores) {
  CpuNodeModel four = node(4);
  four.crowding = {0.0, 0.0, 0.5, 1.0};  // a second core costs nothing, a third half
  const auto two = ends(four, {{0, 10 * kUnit, 1, 2.0}, {0, 10 * kUnit, 1, 2.0}});
  EXPECT_NEAR(static_cast<double>(two[0]), 10.0 * kUnit, 4);
  const auto three =
      ends(four, {{0, 10 * kUnit, 1, 2.0}, {0, 10 * kUnit, 1, 2.0}, {0, 10 * kUnit, 1, 2.0}});
  EXPECT_NEAR(static_cast<double>(three[0]), 15.0 * kUnit, 8);
}

TEST(SharedCores, OversubscriptionCostsOnlyWhenThreadsOutnumberCores) {
  CpuNodeModel one = node(1);
  one.oversubscription = 1.25;
  EXPECT_NEAR(static_cast<double>(ends(one, {{0, 8 * kUnit}})[0]), 8.0 * kUnit, 2);
  // Two threads at half of 1/1.25 each: 8 · 2 · 1.25 = 20.
  const auto t = ends(one, {{0, 8 * kUnit}, {0, 8 * kUnit}});
  EXPECT_NEAR(static_cast<double>(t[0]), 20.0 * kUnit, 4);
}

TEST(SharedCores, WorkIsConserved) {
  // 50 tasks on 3 cores, never idle: the last ends when all the work is done.
  std::vector<TaskPlan> tasks;
  std::int64_t total = 0;
  for (int i = 0; i < 50; ++i) {
    tasks.push_back({i * 7 * kUnit / 10, (3 + i % 7) * kUnit});
    total += tasks.back().work;
  }
  const auto t = ends(node(3), tasks);
  // From 2 tasks on every core has something to do but for the first moments and the last two
  // tasks; so the end lies between total/3 and that plus the longest task.
  const std::int64_t last = *std::max_element(t.begin(), t.end());
  EXPECT_GE(last, total / 3);
  EXPECT_LE(last, total / 3 + 9 * kUnit);
}

}  // namespace
}  // namespace bayplan::sim
