// What would make a job fit, each change judged by lowering and simulating it. Not for: the
// search itself (planner/search).
#pragma once

#include <string>
#include <vector>

#include "planner/core/result.h"
#include "planner/core/units.h"
#include "tools/bayplan/answer.h"
#include "tools/bayplan/request.h"

namespace bayplan::cli {

struct Fix {
  std::string change;  // as options, or a CLUSTER
  std::string kind;    // micro-batch | zero | parallelism | layout | precision | sequence | devices
  std::string exactness;  // exact | lossy | model-changing
  Bytes peak;
  double step_ratio = 0.0;  // step time over that of the answer
  bool fits = false;
};

/// Single changes first tried alone: opening each given decision of the layout, all of them, a
/// narrower precision, a shorter sequence, more devices. Only those that fit are listed, the
/// cheapest kind of change and then the fastest first; when none fits, those that need less memory
/// than the answer.
Result<std::vector<Fix>> find_fixes(const Request& request, const Answer& answer);

}  // namespace bayplan::cli
