// GPipe order for one pipeline flush. Not for: communication (planner/program/pass_*).
#pragma once

#include "planner/schedule/schedule.h"

namespace bayplan {

/// One chunk per rank. Every rank holds all micro-batches at the turn from forward to backward.
Schedule gpipe(const ScheduleShape& shape);

}  // namespace bayplan
