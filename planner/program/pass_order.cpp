// Gives every op and every message between ranks a time on ideal ranks, and each rank its messages
// in order of time. Ranks that issue ops and messages in the order of one common clock cannot
// deadlock, whatever the schedule: each message is next on both sides once all earlier events are
// done. A receive is issued as soon as its tensor exists, so it overlaps what computes meanwhile.
#include <algorithm>
#include <vector>

#include "planner/core/check.h"
#include "planner/program/lowering.h"

namespace bayplan {
namespace {

class Orderer {
 public:
  explicit Orderer(Lowering& lowering) : lowering_(lowering) {
    const Program& program = lowering.program;
    consumer_.assign(program.units.size(), UnitId());
    for (std::size_t u = 0; u < program.units.size(); ++u) {
      for (const BoundarySource& s : program.units[u].sources)
        consumer_[s.unit.index()] = UnitId(u);
    }
  }

  void order(Schedule schedule, RankOrder ClassDraft::*which) {
    Result<ScheduleTiming> timing = time_schedule(schedule);
    BAYPLAN_CHECK(timing.ok(), "schedules are checked before they are lowered");
    for (std::size_t r = 0; r < schedule.rank_ops.size(); ++r) {
      RankOrder& rank = lowering_.classes[r].*which;
      rank.ops = std::move(schedule.rank_ops[r]);
      rank.times = std::move(timing->ops[r]);
    }
    for (const ClassDraft& c : lowering_.classes) {
      const RankOrder& rank = c.*which;
      for (std::size_t k = 0; k < rank.ops.size(); ++k)
        collect(rank.ops[k], rank.times[k].end, which);
    }
    for (ClassDraft& c : lowering_.classes) {
      std::vector<StageMessage>& messages = (c.*which).messages;
      std::stable_sort(
          messages.begin(), messages.end(),
          [](const StageMessage& a, const StageMessage& b) { return a.time < b.time; });
    }
  }

 private:
  std::int32_t rank_of(std::int32_t stage) const {
    return lowering_.program.stage_rank[static_cast<std::size_t>(stage)];
  }

  /// Appends what `op` produces for other ranks to both ends' lists.
  void collect(const ScheduleOp& op, std::int64_t end, RankOrder ClassDraft::*which) {
    if (op.kind == ScheduleOpKind::kBackwardWeight) return;
    const bool gradient = op.kind != ScheduleOpKind::kForward;
    const auto add = [&](UnitId unit, UnitId to) {
      const std::int32_t to_stage = lowering_.unit_stage[to.index()];
      const std::int32_t from = rank_of(op.stage);
      const std::int32_t target = rank_of(to_stage);
      if (from == target) return;
      const StageMessage message{end, gradient, unit, op.stage, to_stage, op.micro_batch};
      for (std::int32_t rank : {from, target})
        (lowering_.classes[static_cast<std::size_t>(rank)].*which).messages.push_back(message);
    };
    const StagePlan& stage = lowering_.plan.stages[static_cast<std::size_t>(op.stage)];
    for (int u = stage.first_unit; u < stage.first_unit + stage.unit_count; ++u) {
      const UnitId unit(static_cast<std::size_t>(u));
      if (gradient) {
        for (const BoundarySource& s : lowering_.program.units[unit.index()].sources)
          add(s.unit, s.unit);
      } else if (consumer_[unit.index()].valid()) {
        add(unit, consumer_[unit.index()]);
      }
    }
  }

  Lowering& lowering_;
  std::vector<UnitId> consumer_;  // per unit; units with several readers are refused earlier
};

}  // namespace

void pass_order(Lowering& lowering, const Schedule& schedule) {
  Orderer orderer(lowering);
  orderer.order(schedule, &ClassDraft::train);
  Schedule forwards = schedule;
  for (auto& ops : forwards.rank_ops) {
    std::erase_if(ops, [](const ScheduleOp& op) { return op.kind != ScheduleOpKind::kForward; });
  }
  orderer.order(std::move(forwards), &ClassDraft::eval);
}

}  // namespace bayplan
