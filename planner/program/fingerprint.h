// 64-bit fingerprint of a Program: instructions, buffers and mesh; never speeds, capacities or
// calibration. Equal on every machine for equal input. Stored in traces and checkpoints.
#pragma once

#include <cstdint>

#include "planner/program/program.h"

namespace bayplan {

std::uint64_t fingerprint(const Program& program);

}  // namespace bayplan
