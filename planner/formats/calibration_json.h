// Calibration ↔ JSON, "bayplan.calibration/1": what `bayplan calibrate` measured of one machine.
// Times and rates carry their unit, except in the long lists of rates, which name it once.
// Not for: measuring (executor/calibrate_torch.h), or how rates become times (planner/cost).
#pragma once

#include <string>

#include "planner/core/result.h"
#include "planner/cost/calibration.h"
#include "planner/formats/json_cursor.h"

namespace bayplan {

Result<Calibration> read_calibration(const JsonCursor& at);
Result<Calibration> read_calibration_file(const std::string& path);

/// Indented JSON that reads back as an equal calibration.
std::string calibration_text(const Calibration& calibration);

}  // namespace bayplan
