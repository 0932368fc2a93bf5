// Runtimes: whose buffers, collectives and habits are predicted. Data in models/runtimes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/core/result.h"
#include "planner/core/units.h"

namespace bayplan {

struct RuntimeDescription {
  std::string name;
  std::string description;
  std::vector<std::string> precisions;
  std::vector<std::int64_t> zero;
  std::vector<std::string> schedules;
  /// Device bytes of a GPU process lie this far below or above allocated + the preset's context,
  /// in nine cases of ten.
  Bytes overhead_below;
  Bytes overhead_above;
  std::string source;
};

const std::vector<std::string>& runtime_names();

/// "unknown-preset" names the nearest.
Result<RuntimeDescription> find_runtime(std::string_view name);

}  // namespace bayplan
