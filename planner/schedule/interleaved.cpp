// Interleaved 1F1B.   Legend: p ranks, v chunks per rank, m micro-batches, F and B the time of one
// chunk's forward and backward.
// Micro-batches pass in rounds of p: all chunks of a round before the next round. Rank r runs
// 2(p-1-r) + (v-1)p warm-up forwards, then alternates. With m a multiple of p the bubble is
// (p-1)(F+B) chunk times, 1/v of 1F1B's. A last round that is not full is the full one without the
// micro-batches that do not exist: leaving some out never adds a dependency.
#include "planner/schedule/interleaved.h"

#include <algorithm>

namespace bayplan {
namespace {

/// Forward `k` of a rank: which chunk and micro-batch; backwards visit the chunks in reverse.
struct Place {
  int chunk = 0;
  int micro_batch = 0;
};
Place place_of(int k, int p, int v) {
  const int round = k / (p * v);
  const int within = k % (p * v);
  return {within / p, round * p + within % p};
}

}  // namespace

Schedule interleaved(const ScheduleShape& shape) {
  const int p = shape.ranks;
  const int v = shape.chunks_per_rank;
  const int rounds = (shape.micro_batches + p - 1) / p;
  const int count = rounds * p * v;
  Schedule schedule;
  for (int s = 0; s < p * v; ++s) schedule.stage_rank.push_back(s % p);
  for (int r = 0; r < p; ++r) {
    std::vector<ScheduleOp> ops;
    const auto add = [&](ScheduleOpKind kind, int k) {
      const Place at = place_of(k, p, v);
      const int chunk = kind == ScheduleOpKind::kForward ? at.chunk : v - 1 - at.chunk;
      if (at.micro_batch < shape.micro_batches)
        ops.push_back({kind, chunk * p + r, at.micro_batch});
    };
    // One chunk needs no lead for the chunks behind it: that is 1F1B.
    const int warm_up = std::min(count, v == 1 ? p - 1 - r : 2 * (p - 1 - r) + (v - 1) * p);
    for (int k = 0; k < warm_up; ++k) add(ScheduleOpKind::kForward, k);
    for (int k = warm_up; k < count; ++k) {
      add(ScheduleOpKind::kForward, k);
      add(ScheduleOpKind::kBackward, k - warm_up);
    }
    for (int k = count - warm_up; k < count; ++k) add(ScheduleOpKind::kBackward, k);
    schedule.rank_ops.push_back(std::move(ops));
  }
  return schedule;
}

}  // namespace bayplan
