// GPipe.   Legend: p stages, m micro-batches, F and B the time of one forward and one backward.
// Every stage runs its m forwards, then its m backwards, both in ascending micro-batch order, so
// that gradients are summed in the same order as under every other schedule. With equal stages a
// flush takes (m + p-1)(F+B), and each stage has m micro-batches in flight.
#include "planner/schedule/gpipe.h"

namespace bayplan {

Schedule gpipe(const ScheduleShape& shape) {
  Schedule schedule;
  for (int stage = 0; stage < shape.ranks; ++stage) {
    std::vector<ScheduleOp> ops;
    ops.reserve(2 * static_cast<std::size_t>(shape.micro_batches));
    for (int j = 0; j < shape.micro_batches; ++j) {
      ops.push_back({ScheduleOpKind::kForward, stage, j});
    }
    for (int j = 0; j < shape.micro_batches; ++j) {
      ops.push_back({ScheduleOpKind::kBackward, stage, j});
    }
    schedule.rank_ops.push_back(std::move(ops));
    schedule.stage_rank.push_back(stage);
  }
  return schedule;
}

}  // namespace bayplan
