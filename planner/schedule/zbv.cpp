// ZBV (Qi et al., "Zero Bubble Pipeline Parallelism", 2023, section 6).   Legend: p ranks, m
// micro-batches; rank r holds stages r and 2p-1-r; F = I = W = 1.
// A list scheduler over unit times: whenever a rank is free it takes a ready backward_input, else a
// ready forward if fewer than 2p stage activations are held (what 1F1B holds), else a weight
// gradient. Which of the two stages goes first, and whether the early stage leaves room for the
// late one, is tried both ways; the shortest schedule wins, the first of equals.
#include "planner/schedule/zbv.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

namespace bayplan {
namespace {

struct Preference {
  bool late_input_first = false;
  bool late_forward_first = false;
  bool keep_room = false;  // an early forward needs room for the late forwards it will cause
};

class ListScheduler {
 public:
  ListScheduler(int ranks, int micro_batches, Preference preference)
      : p_(ranks), m_(micro_batches), preference_(preference) {
    const auto stages = static_cast<std::size_t>(2 * p_);
    for (auto* next : {&forwards_, &inputs_, &weights_}) next->assign(stages, 0);
    for (auto* end : {&forward_end_, &input_end_})
      end->assign(stages * static_cast<std::size_t>(m_), kNever);
    held_.assign(static_cast<std::size_t>(p_), 0);
    schedule_.rank_ops.resize(static_cast<std::size_t>(p_));
    for (int s = 0; s < 2 * p_; ++s) schedule_.stage_rank.push_back(s < p_ ? s : 2 * p_ - 1 - s);
  }

  /// Ends of ops are recorded only after all ranks have chosen, so the order of ranks is of no
  /// consequence. False when all ranks wait: the held activations then leave no room to go on.
  bool run() {
    const std::int64_t all = 6LL * p_ * m_;
    for (std::int64_t done = 0; done < all; ++time_) {
      std::vector<ScheduleOp> chosen;
      for (int r = 0; r < p_; ++r) choose(r, chosen);
      if (chosen.empty()) return false;
      for (const ScheduleOp& op : chosen) finish(op);
      done += static_cast<std::int64_t>(chosen.size());
    }
    return true;
  }

  int makespan() const { return time_; }
  Schedule take() { return std::move(schedule_); }

 private:
  static constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();

  std::size_t at(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(m_) +
           static_cast<std::size_t>(micro_batch);
  }
  bool ready_forward(int s) const {
    const int j = forwards_[static_cast<std::size_t>(s)];
    return j < m_ && (s == 0 || forward_end_[at(s - 1, j)] <= time_);
  }
  bool ready_input(int s) const {
    const int j = inputs_[static_cast<std::size_t>(s)];
    return j < m_ && forward_end_[at(s, j)] <= time_ &&
           (s == 2 * p_ - 1 || input_end_[at(s + 1, j)] <= time_);
  }
  bool has_room(int rank, int s, int early, int late) const {
    const int held = held_[static_cast<std::size_t>(rank)];
    if (held >= 2 * p_) return false;
    if (s != early || !preference_.keep_room) return true;
    const int owed =
        forwards_[static_cast<std::size_t>(early)] - forwards_[static_cast<std::size_t>(late)] + 1;
    return held + 1 + owed <= 2 * p_;
  }

  void choose(int rank, std::vector<ScheduleOp>& chosen) const {
    const int early = rank;
    const int late = 2 * p_ - 1 - rank;
    const auto ordered = [&](bool late_first) {
      return late_first ? std::array<int, 2>{late, early} : std::array<int, 2>{early, late};
    };
    for (int s : ordered(preference_.late_input_first)) {
      if (!ready_input(s)) continue;
      chosen.push_back({ScheduleOpKind::kBackwardInput, s, inputs_[static_cast<std::size_t>(s)]});
      return;
    }
    for (int s : ordered(preference_.late_forward_first)) {
      if (!ready_forward(s) || !has_room(rank, s, early, late)) continue;
      chosen.push_back({ScheduleOpKind::kForward, s, forwards_[static_cast<std::size_t>(s)]});
      return;
    }
    int oldest = -1;
    for (int s : {early, late}) {
      const auto i = static_cast<std::size_t>(s);
      if (weights_[i] >= inputs_[i]) continue;
      if (oldest < 0 || weights_[i] < weights_[static_cast<std::size_t>(oldest)]) oldest = s;
    }
    if (oldest < 0) return;
    chosen.push_back(
        {ScheduleOpKind::kBackwardWeight, oldest, weights_[static_cast<std::size_t>(oldest)]});
  }

  void finish(const ScheduleOp& op) {
    const auto s = static_cast<std::size_t>(op.stage);
    const auto rank = static_cast<std::size_t>(schedule_.stage_rank[s]);
    schedule_.rank_ops[rank].push_back(op);
    if (op.kind == ScheduleOpKind::kForward) {
      ++forwards_[s];
      ++held_[rank];
      forward_end_[at(op.stage, op.micro_batch)] = time_ + 1;
    } else if (op.kind == ScheduleOpKind::kBackwardInput) {
      ++inputs_[s];
      input_end_[at(op.stage, op.micro_batch)] = time_ + 1;
    } else {
      ++weights_[s];
      --held_[rank];
    }
  }

  int p_, m_;
  Preference preference_;
  std::int32_t time_ = 0;
  std::vector<int> forwards_, inputs_, weights_;  // per stage: next micro-batch
  std::vector<std::int32_t> forward_end_, input_end_;
  std::vector<int> held_;  // per rank: stage activations
  Schedule schedule_;
};

}  // namespace

Schedule zbv(const ScheduleShape& shape) {
  Schedule best;
  int shortest = std::numeric_limits<int>::max();
  for (int bits = 0; bits < 8; ++bits) {
    ListScheduler scheduler(shape.ranks, shape.micro_batches,
                            {(bits & 4) == 0, (bits & 2) == 0, (bits & 1) != 0});
    if (!scheduler.run() || scheduler.makespan() >= shortest) continue;
    shortest = scheduler.makespan();
    best = scheduler.take();
  }
  return best;
}

}  // namespace bayplan
