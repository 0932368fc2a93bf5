// The simulator as a scoring function for searches, and a full simulation for reports.
#pragma once

#include "planner/core/result.h"
#include "planner/program/program.h"
#include "planner/search/enumerate.h"
#include "simulator/engine/simulate.h"
#include "tools/bayplan/request.h"

namespace bayplan::cli {

/// Steady step time only. `subject` must outlive the callback.
ScoringCallback step_time_score(const Subject& subject);

/// With interval and breakdown; the timeline too when `timeline`.
Result<sim::SimulationResult> simulate_fully(const Program& program, const Subject& subject,
                                             bool timeline);

/// Findings of verify() as an Error of code "not-verified"; ok when the program is sound.
Status verify_sound(const Program& program);

}  // namespace bayplan::cli
