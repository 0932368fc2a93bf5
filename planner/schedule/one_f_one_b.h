// 1F1B order for one pipeline flush. Not for: communication (planner/program/pass_*).
#pragma once

#include "planner/schedule/schedule.h"

namespace bayplan {

/// One chunk per rank. Rank r holds at most min(m, p - r) micro-batches.
Schedule one_f_one_b(const ScheduleShape& shape);

}  // namespace bayplan
