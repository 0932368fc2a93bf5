// --calibration: which measured rates describe this machine. Only localhost uses them; nothing is
// measured here. Not for: measuring (calibrate.cpp) or the file's format (planner/formats).
#pragma once

#include <optional>
#include <string>

#include "planner/core/result.h"

namespace bayplan::cli {

struct Subject;

/// `$XDG_CACHE_HOME/bayplan/calibration.json`, or below ~/.cache; "" when neither is set.
std::string default_calibration_path();

/// Applies --calibration (nullopt: the default file, when it exists) to a localhost cluster and
/// lists it among the assumptions. Another cluster accepts no file.
Status apply_calibration_option(const std::optional<std::string>& option, Subject& subject);

}  // namespace bayplan::cli
