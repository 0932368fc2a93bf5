// When each op of a schedule runs on ideal ranks: an op starts when its rank is free and its
// producers are done; messages are free. What comes out orders communication (one global order of
// messages cannot deadlock) and gives makespans and in-flight counts. Not for: predicting step
// times (simulator/).
#pragma once

#include <cstdint>
#include <vector>

#include "planner/schedule/schedule.h"

namespace bayplan {

/// Durations in any unit; a full backward takes both backward parts.
struct OpDurations {
  int forward = 1;
  int backward_input = 1;
  int backward_weight = 1;
};

struct OpTime {
  std::int64_t start = 0;
  std::int64_t end = 0;
};

struct ScheduleTiming {
  std::vector<std::vector<OpTime>> ops;  // [rank][position in rank_ops]
  std::int64_t makespan = 0;             // start of the first op to end of the last
  /// Per rank: most stage activations held at a time, from a forward to the weight gradient.
  std::vector<int> in_flight;
};

/// Ops may be any subset of a step, as long as what they wait for is there: forward(s) waits for
/// forward(s-1), a backward of s for forward(s) and the input gradient of s+1, backward_weight(s)
/// for backward_input(s), each of the same micro-batch. Error "schedule-deadlock" names an op that
/// never becomes ready.
Result<ScheduleTiming> time_schedule(const Schedule& schedule, const OpDurations& durations = {});

/// Each stage on the rank that says so, one forward and one whole backward per stage and
/// micro-batch, weight gradients in ascending micro-batch order, no deadlock. Errors:
/// "schedule-incomplete", "schedule-order", "schedule-deadlock", with the op.
Status check_schedule(const Schedule& schedule, int micro_batches);

}  // namespace bayplan
