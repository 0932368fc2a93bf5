// Floating-point work of a Program: what the model needs (MFU) and what the program executes,
// recompute included (HFU). Counts come from the operator table. Not for: time (instruction_cost).
#pragma once

#include "planner/core/units.h"
#include "planner/program/program.h"

namespace bayplan::sim {

struct ProgramFlops {
  FlopCount model;     // forward and backward of all ranks
  FlopCount executed;  // + recompute
};
/// One execution of sub-program `kind` by all ranks.
ProgramFlops program_flops(const Program& program, ProgramKind kind);

}  // namespace bayplan::sim
