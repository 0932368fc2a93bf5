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

/// What the instruction numbers of a timeline stand for, so that a file can be read without its
/// program: per rank class, the kind and stream of every instruction.
struct InstructionLabel {
  InstructionKind kind{};
  Stream stream{};
  friend bool operator==(const InstructionLabel&, const InstructionLabel&) = default;
};
struct TimelineLabels {
  std::vector<std::int32_t> rank_class;  // per rank
  std::vector<std::vector<InstructionLabel>> classes;
  friend bool operator==(const TimelineLabels&, const TimelineLabels&) = default;
};

inline TimelineLabels timeline_labels(const Program& program, ProgramKind kind) {
  TimelineLabels labels;
  labels.rank_class = program.rank_class;
  for (const RankClass& c : program.classes) {
    std::vector<InstructionLabel>& out = labels.classes.emplace_back();
    for (const Instruction& i : c.programs[static_cast<std::size_t>(kind)].instructions) {
      out.push_back({i.kind, i.stream});
    }
  }
  return labels;
}

}  // namespace bayplan
