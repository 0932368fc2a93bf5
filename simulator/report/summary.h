// One screen about a simulated step: time, rate, where the step goes, memory per rank class.
// Not for: JSON that scripts read (tools/bayplan/report), or why the plan was chosen (explain).
#pragma once

#include <string>

#include "planner/program/program.h"
#include "simulator/engine/simulate.h"

namespace bayplan::sim {

/// Lines of at most 100 columns, ending in a newline.
std::string summary_text(const Program& program, const SimulationResult& result);

}  // namespace bayplan::sim
