// Timeline: when and how much. The simulator predicts one and a run measures one; both name the
// same instructions, so comparing them is a join.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/units.h"
#include "planner/program/program.h"

namespace bayplan {

/// One executed instruction. `ready` is when it was issued and its waits were done; between ready
/// and start it waited for its stream or its partners.
struct TimelineEvent {
  std::int32_t rank = 0;
  std::int32_t step = 0;
  InstructionId instruction;
  Picoseconds ready;
  Picoseconds start;
  Picoseconds end;
  friend bool operator==(const TimelineEvent&, const TimelineEvent&) = default;
};

/// Bytes in use on one tier of one rank from `time` on.
struct MemorySample {
  std::int32_t rank = 0;
  Tier tier = Tier::kDevice;
  Picoseconds time;
  std::int64_t live_bytes = 0;
};

struct Timeline {
  std::uint64_t fingerprint = 0;
  ProgramKind program = ProgramKind::kTrainStep;
  bool measured = false;
  std::vector<TimelineEvent> events;  // by (step, rank, issue order)
  std::vector<MemorySample> memory;
  std::vector<Picoseconds> step_times;  // one per step: latest end − earliest start over ranks
};

}  // namespace bayplan
