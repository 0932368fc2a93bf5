// calibrate_machine(): measures this machine for the simulator. Calls operator kernels on a grid of
// shapes of its own, streaming kernels, and thread wake-ups; never a Program, so a prediction is
// not fitted to what it predicts. Not for: turning rates into times (planner/cost).
#pragma once

#include <functional>
#include <string>

#include "planner/core/result.h"
#include "planner/cost/calibration.h"

namespace bayplan::exec {

struct CalibrateOptions {
  double budget_seconds = 80.0;  // about how long to take; more gives steadier numbers
  int cores = 0;                 // 0: all that the process may use
};

/// Needs the machine to itself. progress(fraction done, what is measured) may be empty. Error:
/// "bad-budget".
Result<Calibration> calibrate_machine(
    const CalibrateOptions& options,
    const std::function<void(double, const std::string&)>& progress = {});

}  // namespace bayplan::exec
