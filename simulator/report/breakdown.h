// Where a step's time goes, from a Timeline, predicted or measured. Not for: why it was planned
// that way (explain).
#pragma once

#include "planner/core/units.h"
#include "planner/program/program.h"
#include "planner/program/timeline.h"

namespace bayplan::sim {

/// Mean over ranks; the parts of each rank cover the step without gap or overlap.
struct StepBreakdown {
  Seconds compute;                // forward, backward and recompute; contention included
  Seconds exposed_communication;  // nothing computed while a call of the rank moved data
  Seconds bubble;                 // nothing computed, waiting for other ranks
  Seconds optimizer;              // gradient norm and update
  Seconds offload;                // nothing computed while a transfer between tiers ran
  Seconds launch;                 // the device waited for the host, or the host loaded input
  Seconds total() const {
    return compute + exposed_communication + bubble + optimizer + offload + launch;
  }
};

/// Parts of step `step` of the timeline.
StepBreakdown break_down(const Program& program, const Timeline& timeline, std::int32_t step);

}  // namespace bayplan::sim
