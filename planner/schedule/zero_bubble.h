// Zero-bubble schedules with one chunk per rank: the backward is split, and weight gradients fill
// the gaps.
#pragma once

#include "planner/schedule/schedule.h"

namespace bayplan {

Schedule zb_h1(const ScheduleShape& shape);
Schedule zb_h2(const ScheduleShape& shape);

}  // namespace bayplan
