// Interleaved 1F1B: v model chunks per rank, stage s on rank s mod p.
#pragma once

#include "planner/schedule/schedule.h"

namespace bayplan {

Schedule interleaved(const ScheduleShape& shape);

}  // namespace bayplan
