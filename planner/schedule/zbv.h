// ZBV: two chunks per rank in a V, so that a rank holds one early and one late stage.
#pragma once

#include "planner/schedule/schedule.h"

namespace bayplan {

Schedule zbv(const ScheduleShape& shape);

}  // namespace bayplan
