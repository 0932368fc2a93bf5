// Breadth-first.   Legend: p ranks, v chunks per rank, m micro-batches, F and B the time of one
// chunk's forward and backward.
// Stage s is on rank s mod p. A rank runs chunk after chunk, each over all micro-batches, and back:
// GPipe's memory with 1/v of its bubble, (p-1)(F+B) chunk times for m >= p. A ZeRO-3 shard is
// gathered once per chunk and direction instead of once per micro-batch. v = 1 is GPipe.
#include "planner/schedule/breadth_first.h"

namespace bayplan {

Schedule breadth_first(const ScheduleShape& shape) {
  const int p = shape.ranks;
  const int v = shape.chunks_per_rank;
  Schedule schedule;
  for (int s = 0; s < p * v; ++s) schedule.stage_rank.push_back(s % p);
  for (int r = 0; r < p; ++r) {
    std::vector<ScheduleOp> ops;
    for (int chunk = 0; chunk < v; ++chunk) {
      for (int j = 0; j < shape.micro_batches; ++j)
        ops.push_back({ScheduleOpKind::kForward, chunk * p + r, j});
    }
    for (int chunk = v - 1; chunk >= 0; --chunk) {
      for (int j = 0; j < shape.micro_batches; ++j)
        ops.push_back({ScheduleOpKind::kBackward, chunk * p + r, j});
    }
    schedule.rank_ops.push_back(std::move(ops));
  }
  return schedule;
}

}  // namespace bayplan
