// DualPipeV (DeepSeek's DualPipe cut in half, 2025).   Legend: p ranks, m micro-batches; rank r
// holds the early stage r and the late stage 2p-1-r; F = I = W = 1, B = I + W.
// Warm-up fills both stages, the main part alternates a forward of one stage with a backward of
// the other (the pair that hardware may overlap), and the cool-down splits backwards so that W
// fills its gaps. The makespan is 6m + p-1 for m >= 2p, with at most 2p+1 stage activations held.
// Fewer than 2p micro-batches are 2p of which the last are left out.
#include "planner/schedule/dual_pipe.h"

#include <algorithm>
#include <array>

namespace bayplan {
namespace {

class RankBuilder {
 public:
  RankBuilder(int early, int late, int micro_batches)
      : stage_{early, late}, micro_batches_(micro_batches) {}

  enum Chunk : std::size_t { kEarly, kLate };

  void forward(Chunk c) { add(ScheduleOpKind::kForward, c, forwards_[c]++); }
  void backward(Chunk c) { add(ScheduleOpKind::kBackward, c, backwards_[c]++); }
  void input(Chunk c) {
    deferred_.push_back({ScheduleOpKind::kBackwardWeight, stage_[c], backwards_[c]});
    add(ScheduleOpKind::kBackwardInput, c, backwards_[c]++);
  }
  void weight() {
    const ScheduleOp op = deferred_[next_deferred_++];
    if (op.micro_batch < micro_batches_) ops_.push_back(op);
  }
  bool owes_weight() const { return next_deferred_ < deferred_.size(); }
  std::vector<ScheduleOp> take() { return std::move(ops_); }

 private:
  void add(ScheduleOpKind kind, Chunk c, int micro_batch) {
    if (micro_batch < micro_batches_) ops_.push_back({kind, stage_[c], micro_batch});
  }

  std::array<int, 2> stage_;
  int micro_batches_;
  std::array<int, 2> forwards_{}, backwards_{};
  std::vector<ScheduleOp> deferred_;
  std::size_t next_deferred_ = 0;
  std::vector<ScheduleOp> ops_;
};

}  // namespace

Schedule dualpipev(const ScheduleShape& shape) {
  constexpr auto kEarly = RankBuilder::kEarly;
  constexpr auto kLate = RankBuilder::kLate;
  const int p = shape.ranks;
  const int m = std::max(shape.micro_batches, 2 * p);
  Schedule schedule;
  for (int s = 0; s < 2 * p; ++s) schedule.stage_rank.push_back(s < p ? s : 2 * p - 1 - s);
  for (int r = 0; r < p; ++r) {
    RankBuilder rank(r, 2 * p - 1 - r, shape.micro_batches);
    const int below = p - 1 - r;
    for (int k = 0; k < 2 * below; ++k) rank.forward(kEarly);
    for (int k = 0; k <= r; ++k) {
      rank.forward(kEarly);
      rank.forward(kLate);
    }
    for (int k = 0; k < below; ++k) {
      rank.input(kLate);
      rank.weight();
      rank.forward(kLate);
    }
    for (int k = 0; k < m - 2 * p + r + 1; ++k) {
      rank.forward(kEarly);
      rank.backward(kLate);
      rank.forward(kLate);
      rank.backward(kEarly);
    }
    for (int k = 0; k < below; ++k) {
      rank.backward(kLate);
      rank.forward(kLate);
      rank.backward(kEarly);
    }
    // From the middle on backwards are split; odd ranks start with the late stage's.
    for (int k = 0; k <= r; ++k) {
      const bool late_split = k > (r + 1) / 2 || (k == (r + 1) / 2 && r % 2 == 1);
      const bool early_split = k >= (r + 1) / 2;
      late_split ? rank.input(kLate) : rank.backward(kLate);
      early_split ? rank.input(kEarly) : rank.backward(kEarly);
    }
    for (int k = 0; k < below; ++k) {
      rank.weight();
      rank.input(kEarly);
    }
    while (rank.owes_weight()) rank.weight();
    schedule.rank_ops.push_back(rank.take());
  }
  return schedule;
}

}  // namespace bayplan
