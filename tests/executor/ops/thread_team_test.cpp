#include "executor/ops/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace bayplan::exec {
namespace {

TEST(ThreadTeam, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 4}) {
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> seen(17);
      parallel_tasks(threads, 17, [&](std::int64_t i) { ++seen[static_cast<std::size_t>(i)]; });
      for (const auto& count : seen) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ThreadTeam, RangesAreDisjointAndComplete) {
  for (const std::int64_t n : {1, 15, 16, 17, 1000, 4099}) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
    parallel_ranges(3, n, 16, [&](kernels::Range r) {
      for (std::int64_t i = r.begin; i < r.end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    for (const auto& count : seen) ASSERT_EQ(count, 1);
  }
}

TEST(ThreadTeam, SmallWorkStaysOnTheCaller) {
  const std::thread::id caller = std::this_thread::get_id();
  parallel_ranges(4, 100, 101, [&](kernels::Range r) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(r.end - r.begin, 100);
  });
}

TEST(ThreadTeam, RethrowsAndGoesOn) {
  EXPECT_THROW(parallel_tasks(2, 8,
                              [](std::int64_t i) {
                                if (i == 3) throw std::runtime_error("task 3");
                              }),
               std::runtime_error);
  std::atomic<int> count{0};
  parallel_tasks(2, 8, [&](std::int64_t) { ++count; });
  EXPECT_EQ(count, 8);
}

TEST(ThreadTeam, RanksHaveTeamsOfTheirOwn) {
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        parallel_tasks(2, 10, [&](std::int64_t i) { sum += i; });
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(sum, 3 * 50 * 45);  // 0 + … + 9 = 45
}

}  // namespace
}  // namespace bayplan::exec
