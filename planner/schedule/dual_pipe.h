// DualPipeV: two chunks per rank in a V; forwards of one chunk are paired with backwards of the
// other.
#pragma once

#include "planner/schedule/schedule.h"

namespace bayplan {

Schedule dualpipev(const ScheduleShape& shape);

}  // namespace bayplan
