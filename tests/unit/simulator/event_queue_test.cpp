#include "simulator/engine/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace bayplan::sim {
namespace {

TEST(EventQueue, GivesEventsByTimeThenKey) {
  std::mt19937_64 random(7);
  std::vector<Event> events;
  for (std::uint64_t key = 0; key < 2000; ++key) {
    events.push_back({static_cast<std::int64_t>(random() % 50), key});
  }
  std::shuffle(events.begin(), events.end(), random);
  EventQueue<Event> queue;
  for (const Event& e : events) queue.push(e);
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.key < b.key;
  });
  for (const Event& expected : events) {
    const Event e = queue.pop();
    ASSERT_EQ(e.time, expected.time);
    ASSERT_EQ(e.key, expected.key);
  }
  EXPECT_TRUE(queue.empty());
}

TEST(EventQueue, StaysOrderedWhilePushesAndPopsMix) {
  std::mt19937_64 random(11);
  EventQueue<Event> queue;
  std::int64_t now = 0;
  std::uint64_t key = 0;
  queue.push({0, key++});
  for (int i = 0; i < 5000 && !queue.empty(); ++i) {
    const Event e = queue.pop();
    ASSERT_GE(e.time, now);
    now = e.time;
    const std::uint64_t children = random() % 3;
    for (std::uint64_t c = 0; c < children || queue.size() < 4; ++c) {
      queue.push({now + static_cast<std::int64_t>(random() % 9), key++});
    }
  }
}

}  // namespace
}  // namespace bayplan::sim
