// 1F1B.   Legend: p stages, m micro-batches, r this stage, F and B the time of one forward and
// one backward.
// Stage r runs w = min(m, p-1-r) warm-up forwards, alternates one forward and one backward, then
// drains w backwards: at most min(m, p-r) micro-batches are in flight, and the bubble is
// (p-1)(F+B) when stages are equal. Only the order of compute is decided here.
#include "planner/schedule/one_f_one_b.h"

#include <algorithm>

namespace bayplan {

Schedule one_f_one_b(const ScheduleShape& shape) {
  Schedule schedule;
  for (int r = 0; r < shape.ranks; ++r) {
    const int m = shape.micro_batches;
    const int warm_up = std::min(m, shape.ranks - 1 - r);
    std::vector<ScheduleOp> ops;
    ops.reserve(2 * static_cast<std::size_t>(m));
    for (int j = 0; j < warm_up; ++j) ops.push_back({ScheduleOpKind::kForward, r, j});
    for (int j = warm_up; j < m; ++j) {
      ops.push_back({ScheduleOpKind::kForward, r, j});
      ops.push_back({ScheduleOpKind::kBackward, r, j - warm_up});
    }
    for (int j = m - warm_up; j < m; ++j) ops.push_back({ScheduleOpKind::kBackward, r, j});
    schedule.rank_ops.push_back(std::move(ops));
    schedule.stage_rank.push_back(r);
  }
  return schedule;
}

}  // namespace bayplan
