// Breadth-first: every chunk takes all micro-batches before the next chunk starts.
#pragma once

#include "planner/schedule/schedule.h"

namespace bayplan {

Schedule breadth_first(const ScheduleShape& shape);

}  // namespace bayplan
