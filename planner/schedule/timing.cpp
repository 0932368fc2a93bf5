#include "planner/schedule/timing.h"

#include <algorithm>
#include <array>
#include <string>

#include "planner/schedule/table.h"

namespace bayplan {
namespace {

constexpr std::int64_t kNotDone = -1;

/// Ends of the three results that others wait for, dense in (stage, micro-batch).
class Results {
 public:
  Results(std::size_t stages, int micro_batches)
      : micro_batches_(static_cast<std::size_t>(micro_batches)) {
    for (auto& table : end_) table.assign(stages * micro_batches_, kNotDone);
  }
  enum Which : std::size_t { kActivation, kInputGradient, kWeightGradient };
  std::int64_t& of(Which which, std::int32_t stage, std::int32_t micro_batch) {
    return end_[which][static_cast<std::size_t>(stage) * micro_batches_ +
                       static_cast<std::size_t>(micro_batch)];
  }

 private:
  std::size_t micro_batches_;
  std::array<std::vector<std::int64_t>, 3> end_;
};

bool gives_input_gradient(ScheduleOpKind k) {
  return k == ScheduleOpKind::kBackward || k == ScheduleOpKind::kBackwardInput;
}
bool gives_weight_gradient(ScheduleOpKind k) {
  return k == ScheduleOpKind::kBackward || k == ScheduleOpKind::kBackwardWeight;
}

/// When `op` may start for its producers' sake; kNotDone while one of them is not done.
std::int64_t ready_at(const ScheduleOp& op, std::int32_t last_stage, Results& results) {
  std::int64_t ready = 0;
  const auto needs = [&](Results::Which which, std::int32_t stage) {
    const std::int64_t end = results.of(which, stage, op.micro_batch);
    ready = end == kNotDone || ready == kNotDone ? kNotDone : std::max(ready, end);
  };
  if (op.kind == ScheduleOpKind::kForward) {
    if (op.stage > 0) needs(Results::kActivation, op.stage - 1);
  } else if (op.kind == ScheduleOpKind::kBackwardWeight) {
    needs(Results::kInputGradient, op.stage);
  } else {
    needs(Results::kActivation, op.stage);
    if (op.stage < last_stage) needs(Results::kInputGradient, op.stage + 1);
  }
  return ready;
}

std::int64_t duration(const ScheduleOp& op, const OpDurations& d) {
  switch (op.kind) {
    case ScheduleOpKind::kForward:
      return d.forward;
    case ScheduleOpKind::kBackward:
      return d.backward_input + d.backward_weight;
    case ScheduleOpKind::kBackwardInput:
      return d.backward_input;
    case ScheduleOpKind::kBackwardWeight:
      return d.backward_weight;
  }
  return 0;
}

int most_in_flight(const std::vector<ScheduleOp>& ops) {
  int held = 0;
  int most = 0;
  for (const ScheduleOp& op : ops) {
    if (op.kind == ScheduleOpKind::kForward) most = std::max(most, ++held);
    if (gives_weight_gradient(op.kind)) --held;
  }
  return most;
}

}  // namespace

Result<ScheduleTiming> time_schedule(const Schedule& schedule, const OpDurations& durations) {
  const std::size_t ranks = schedule.rank_ops.size();
  const auto last_stage = static_cast<std::int32_t>(schedule.stage_rank.size()) - 1;
  int micro_batches = 0;
  for (const auto& ops : schedule.rank_ops) {
    for (const ScheduleOp& op : ops) micro_batches = std::max(micro_batches, op.micro_batch + 1);
  }
  Results results(schedule.stage_rank.size(), micro_batches);
  ScheduleTiming timing;
  timing.ops.resize(ranks);
  std::vector<std::int64_t> free(ranks, 0);
  // A rank is looked at again after one that it may wait for has advanced.
  std::vector<std::size_t> ready(ranks);
  std::vector<bool> queued(ranks, true);
  for (std::size_t r = 0; r < ranks; ++r) ready[r] = ranks - 1 - r;
  while (!ready.empty()) {
    const std::size_t r = ready.back();
    ready.pop_back();
    queued[r] = false;
    const std::vector<ScheduleOp>& ops = schedule.rank_ops[r];
    while (timing.ops[r].size() < ops.size()) {
      const ScheduleOp& op = ops[timing.ops[r].size()];
      const std::int64_t producers = ready_at(op, last_stage, results);
      if (producers == kNotDone) break;
      const OpTime time{std::max(free[r], producers),
                        std::max(free[r], producers) + duration(op, durations)};
      free[r] = time.end;
      timing.ops[r].push_back(time);
      timing.makespan = std::max(timing.makespan, time.end);
      const auto wake = [&](std::int32_t stage) {
        if (stage < 0 || stage > last_stage) return;
        const auto other =
            static_cast<std::size_t>(schedule.stage_rank[static_cast<std::size_t>(stage)]);
        if (other == r || queued[other]) return;
        queued[other] = true;
        ready.push_back(other);
      };
      if (op.kind == ScheduleOpKind::kForward) {
        results.of(Results::kActivation, op.stage, op.micro_batch) = time.end;
        wake(op.stage + 1);
      }
      if (gives_input_gradient(op.kind)) {
        results.of(Results::kInputGradient, op.stage, op.micro_batch) = time.end;
        wake(op.stage - 1);
      }
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::vector<ScheduleOp>& ops = schedule.rank_ops[r];
    timing.in_flight.push_back(most_in_flight(ops));
    if (timing.ops[r].size() == ops.size()) continue;
    return Error{"schedule-deadlock",
                 "pipeline rank " + std::to_string(r) + " never gets past " +
                     op_text(ops[timing.ops[r].size()]) + ", position " +
                     std::to_string(timing.ops[r].size()) +
                     ": what it needs is computed later, or not at all",
                 "--schedule", "move it behind its producers"};
  }
  return timing;
}

Status check_schedule(const Schedule& schedule, int micro_batches) {
  const auto fail = [](std::string code, std::string message, std::string hint) {
    return Error{std::move(code), std::move(message), "--schedule", std::move(hint)};
  };
  const std::size_t stages = schedule.stage_rank.size();
  Results seen(stages, micro_batches);
  std::vector<std::int32_t> last_weight(stages, -1);
  for (std::size_t r = 0; r < schedule.rank_ops.size(); ++r) {
    for (const ScheduleOp& op : schedule.rank_ops[r]) {
      const std::string name = op_text(op) + " on pipeline rank " + std::to_string(r);
      if (op.stage < 0 || static_cast<std::size_t>(op.stage) >= stages || op.micro_batch < 0 ||
          op.micro_batch >= micro_batches) {
        return fail("schedule-incomplete",
                    name + " is outside " + std::to_string(stages) + " stages and " +
                        std::to_string(micro_batches) + " micro-batches",
                    "the table and the global batch must name the same micro-batches");
      }
      if (schedule.stage_rank[static_cast<std::size_t>(op.stage)] != static_cast<int>(r)) {
        return fail("schedule-order", name + ": the stage is on another rank",
                    "keep all ops of a stage on one rank");
      }
      const auto once = [&](Results::Which which) {
        return seen.of(which, op.stage, op.micro_batch)++ == kNotDone;
      };
      const bool repeated = (op.kind == ScheduleOpKind::kForward && !once(Results::kActivation)) ||
                            (gives_input_gradient(op.kind) && !once(Results::kInputGradient)) ||
                            (gives_weight_gradient(op.kind) && !once(Results::kWeightGradient));
      if (repeated) return fail("schedule-incomplete", name + " repeats an earlier op", "drop one");
      if (!gives_weight_gradient(op.kind)) continue;
      std::int32_t& last = last_weight[static_cast<std::size_t>(op.stage)];
      if (op.micro_batch < last) {
        return fail("schedule-order",
                    name + " adds its gradient after that of micro-batch " + std::to_string(last),
                    "weight gradients of a stage are summed in ascending micro-batch order");
      }
      last = op.micro_batch;
    }
  }
  for (std::size_t s = 0; s < stages; ++s) {
    for (int j = 0; j < micro_batches; ++j) {
      constexpr std::array<const char*, 3> kMissing = {"forward", "backward", "weight gradient"};
      for (const auto which :
           {Results::kActivation, Results::kInputGradient, Results::kWeightGradient}) {
        if (seen.of(which, static_cast<std::int32_t>(s), j) != kNotDone) continue;
        return fail("schedule-incomplete",
                    "stage " + std::to_string(s) + " has no " + kMissing[which] +
                        " of micro-batch " + std::to_string(j),
                    "give every stage F and B, or F, I and W, of every micro-batch");
      }
    }
  }
  const Result<ScheduleTiming> timing = time_schedule(schedule);
  if (!timing.ok()) return timing.error();
  return {};
}

}  // namespace bayplan
