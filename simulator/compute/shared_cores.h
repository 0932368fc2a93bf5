// The cores of one CPU node, shared by the threads of its ranks. Tasks that other busy cores slow
// down alike progress at one rate, so each such lane has a virtual clock and a task's end is a
// fixed reading of it: starting and finishing cost O(log n), however many tasks run.
// Not for: who may start when (engine.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "simulator/cost/cost_model.h"
#include "simulator/engine/event_queue.h"

namespace bayplan::sim {

class SharedCores {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  explicit SharedCores(const CpuNodeModel& model);

  /// Moves all clocks to `now` (picoseconds, not before the last call).
  void advance(std::int64_t now);
  /// Starts a task of `work` picoseconds (> 0) on an idle node, `slowdown` times that when all
  /// cores are busy. Call advance() first. `key` identifies the task and orders tasks that finish
  /// together.
  void start(std::int64_t work, std::int32_t threads, double slowdown, std::uint64_t key);
  /// Removes one task whose work is done at the time of the last advance(); false if there is none.
  bool take_finished(std::uint64_t& key);
  /// When the next task finishes if nothing starts before; kNever when idle.
  std::int64_t next_finish() const;
  /// Whether a thread that wakes up finds no idle core.
  bool full() const { return running_ >= model_.cores; }

 private:
  struct Task {
    std::int64_t time = 0;  // clock reading at which it is done
    std::uint64_t key = 0;
    std::int32_t threads = 1;
  };
  /// Tasks whose slowdown is within an eighth of an octave of 2^(index/4); their work is adjusted
  /// so that it takes its exact time while all cores are busy.
  static constexpr std::size_t kLanes = 8;
  /// `clock` counts the picoseconds of work that each task of the lane got done.
  struct Lane {
    EventQueue<Task> tasks;
    std::int64_t clock = 0;
    std::int64_t rate = 0;  // clock per time, times kRateOne
    double slowdown = 1.0;
  };

  const std::array<std::int64_t, kLanes>& rates_with(std::int32_t threads);
  void update_rates();

  CpuNodeModel model_;
  std::array<Lane, kLanes> lanes_;
  /// [n]: rates of all lanes with n running threads; zero until first needed.
  std::vector<std::array<std::int64_t, kLanes>> rates_;
  std::int64_t now_ = 0;
  std::int32_t running_ = 0;
};

}  // namespace bayplan::sim
