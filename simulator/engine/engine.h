// The event loop. Replays the class graphs of all ranks in time order and writes down when each
// instruction was ready, started and ended. Costs and matches come prepared (prepare.h).
// Not for: reports, memory, intervals (simulate.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/result.h"
#include "planner/core/units.h"
#include "planner/program/timeline.h"
#include "simulator/engine/prepare.h"

namespace bayplan::sim {

struct EngineOptions {
  int steps = 1;
  bool record = true;
  double compute_scale = 1.0;
  double communication_scale = 1.0;
};

/// Times in picoseconds since the start of the first step.
struct EngineResult {
  std::vector<TimelineEvent> events;    // by (step, rank, issue order); empty unless recorded
  std::vector<Picoseconds> step_times;  // latest end − earliest start over ranks
  std::int64_t completed = 0;           // instructions
};

Result<EngineResult> run_engine(const Prepared& prepared, const EngineOptions& options);

}  // namespace bayplan::sim
