// ZB-H1 and ZB-H2 (Qi et al., "Zero Bubble Pipeline Parallelism", 2023).   Legend: p ranks, m
// micro-batches, r this rank; F, I and W the time of one forward, backward_input and
// backward_weight.
// H1 is 1F1B's order with W run r micro-batches behind I: every rank holds min(m, p) micro-batches,
// and the bubble is (p-1)(F+I-W). H2 starts 2(p-r)-1 forwards before the first I and runs W 2r
// behind: 2p-1 micro-batches are held, and for F = I = W and m >= 2p-1 no rank idles between its
// first forward and its last W.
#include "planner/schedule/zero_bubble.h"

#include <algorithm>

namespace bayplan {
namespace {

/// One rank's ops under construction; each kind takes the micro-batches in ascending order.
struct RankOps {
  int stage = 0;
  int micro_batches = 0;
  int forwards = 0, inputs = 0, weights = 0;
  std::vector<ScheduleOp> ops;

  void forward() {
    if (forwards < micro_batches) ops.push_back({ScheduleOpKind::kForward, stage, forwards++});
  }
  void input() { ops.push_back({ScheduleOpKind::kBackwardInput, stage, inputs++}); }
  void weight() { ops.push_back({ScheduleOpKind::kBackwardWeight, stage, weights++}); }
};

Schedule assemble(const ScheduleShape& shape, void (*fill)(RankOps&, int ranks, int rank)) {
  Schedule schedule;
  for (int r = 0; r < shape.ranks; ++r) {
    RankOps rank{r, shape.micro_batches, 0, 0, 0, {}};
    fill(rank, shape.ranks, r);
    while (rank.weights < rank.micro_batches) rank.weight();
    schedule.rank_ops.push_back(std::move(rank.ops));
    schedule.stage_rank.push_back(r);
  }
  return schedule;
}

}  // namespace

Schedule zb_h1(const ScheduleShape& shape) {
  return assemble(shape, [](RankOps& rank, int ranks, int r) {
    for (int k = 0; k < ranks - 1 - r; ++k) rank.forward();
    while (rank.inputs < rank.micro_batches) {
      rank.forward();
      rank.input();
      if (rank.inputs - rank.weights > r) rank.weight();
    }
  });
}

Schedule zb_h2(const ScheduleShape& shape) {
  return assemble(shape, [](RankOps& rank, int ranks, int r) {
    for (int k = 0; k < 2 * (ranks - r) - 1; ++k) rank.forward();
    while (rank.inputs < rank.micro_batches) {
      rank.input();
      if (rank.inputs - rank.weights > 2 * r) rank.weight();
      rank.forward();
    }
  });
}

}  // namespace bayplan
