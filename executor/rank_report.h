// What every rank reports at the end of a run, and how rank 0 collects it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "executor/comm/communicator.h"
#include "executor/memory/arena_use.h"
#include "executor/run.h"
#include "planner/program/timeline.h"

namespace bayplan::exec {

struct RankReport {
  int rank = 0;
  std::vector<MemoryReport> memory;
  std::vector<WireReport> wire;
  std::vector<TimelineEvent> events;
  std::vector<MemorySample> samples;
};

/// Predicted and measured memory of one rank, one entry per tier in use.
std::vector<MemoryReport> memory_reports(const Program& program, int rank, const ArenaUse& use,
                                         std::int64_t workspace_used);

/// Predicted and sent bytes of one rank per (collective, purpose) that is not zero;
/// `executions`: how often each sub-program ran.
std::vector<WireReport> wire_reports(const Program& program, int rank,
                                     const std::array<std::int64_t, kProgramKindCount>& executions,
                                     const std::vector<WireCount>& sent);

/// Collective. Every rank's report, in rank order, on rank 0; empty elsewhere.
std::vector<RankReport> gather_reports(Communicator& communicator, const RankReport& own);

/// Events of all ranks by (step, rank, issue order), and one step time per recorded step.
Timeline merge_timelines(const Program& program, const std::vector<RankReport>& reports);

/// Peak resident bytes of this process; 0 when the system does not say.
std::int64_t peak_resident_bytes();

}  // namespace bayplan::exec
