// What a rank is doing right now, readable from any thread and from a signal handler: the source
// of every "who waited for whom" message. Not a record of the past (TimelineEvent).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "executor/comm/communicator.h"
#include "planner/program/program.h"

namespace bayplan::exec {

enum class Activity : std::uint8_t {
  kIdle,
  kWaiting,  // for earlier instructions of the same rank
  kRunning,
};

struct ThreadStatus {
  std::atomic<Activity> activity{Activity::kIdle};
  std::atomic<std::int32_t> instruction{-1};

  void set(Activity a, std::int32_t i) noexcept {
    instruction.store(i, std::memory_order_relaxed);
    activity.store(a, std::memory_order_relaxed);
  }
};

struct RankStatus {
  std::atomic<ProgramKind> program{ProgramKind::kLoad};
  std::atomic<std::int64_t> step{0};
  ThreadStatus host;      // computes
  ThreadStatus progress;  // communicates
};

/// The instruction that holds the rank up: what the host runs, else what the progress thread
/// runs, else what the host waits before. Invalid when idle.
InstructionId current_instruction(const RankStatus& status) noexcept;

/// "step 3 of train_step, instruction i12 compute F stage 0 …".
std::string describe_status(const Program& program, int rank, const RankStatus& status);

/// The same with the instruction's kind and number only, and the awaited peer, as one line with
/// newline into `out`; returns its length. Async-signal-safe.
std::size_t write_status(const Program& program, int rank, const RankStatus& status,
                         const Communicator& communicator, char* out,
                         std::size_t capacity) noexcept;

}  // namespace bayplan::exec
