// Turns the order of ops and messages (pass_order.cpp) into instructions: loads, per-unit compute,
// sends and receives. Messages of one time are one group call: with unbuffered messages, two ranks
// that send to each other one by one deadlock.
#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "planner/program/lowering.h"

namespace bayplan {
namespace {

/// Emits one sub-program's compute for one class.
class ComputeEmitter {
 public:
  ComputeEmitter(Lowering& lowering, ClassDraft& c, ProgramKind kind)
      : lowering_(lowering),
        c_(c),
        draft_(c.draft(kind)),
        train_(kind == ProgramKind::kTrainStep) {}

  void emit(const RankOrder& order) {
    auto next = order.messages.begin();
    const auto emit_until = [&](std::int64_t time) {
      while (next != order.messages.end() && next->time <= time) {
        const auto first = next;
        while (next != order.messages.end() && next->time == first->time) ++next;
        const int fuse = next - first > 1 ? draft_.next_fuse++ : -1;
        for (auto m = first; m != next; ++m) emit_message(*m, fuse);
      }
    };
    for (std::size_t k = 0; k < order.ops.size(); ++k) {
      emit_until(order.times[k].start);
      emit_op(order.ops[k]);
    }
    emit_until(std::numeric_limits<std::int64_t>::max());
  }

 private:
  const Program& program() const { return lowering_.program; }
  BufferId buffer(UnitId u, std::int32_t micro_batch, UnitBuffer kind) {
    return unit_buffer(lowering_, c_, u, micro_batch, kind);
  }

  /// Units of `stage`, in model order.
  std::pair<int, int> units_of(std::int32_t stage) const {
    const StagePlan& s = lowering_.plan.stages[static_cast<std::size_t>(stage)];
    return {s.first_unit, s.first_unit + s.unit_count};
  }

  /// Position of `stage` among those of this rank.
  std::int32_t chunk_of(std::int32_t stage) const {
    const std::vector<std::int32_t>& held = c_.result.stages;
    return static_cast<std::int32_t>(std::find(held.begin(), held.end(), stage) - held.begin());
  }

  void emit_message(const StageMessage& m, int fuse) {
    const bool sends = program().stage_rank[static_cast<std::size_t>(m.from_stage)] == c_.result.pp;
    Instruction i;
    if (m.gradient) {
      i.kind = sends ? InstructionKind::kSendGradient : InstructionKind::kRecvGradient;
    } else {
      i.kind = sends ? InstructionKind::kSendActivation : InstructionKind::kRecvActivation;
    }
    i.stream = Stream::kP2p;
    i.stage = sends ? m.from_stage : m.to_stage;
    i.peer_stage = sends ? m.to_stage : m.from_stage;
    i.chunk = chunk_of(i.stage);
    i.unit = m.unit;
    i.boundary = 0;
    i.micro_batch = m.micro_batch;
    i.fuse = fuse;
    const BufferId b = buffer(m.unit, m.micro_batch,
                              m.gradient ? UnitBuffer::kOutputGradient : UnitBuffer::kOutput);
    draft_.add(i, {use(c_, b, sends ? AccessMode::kRead : AccessMode::kWrite)});
  }

  void emit_op(const ScheduleOp& op) {
    const auto [first, last] = units_of(op.stage);
    if (op.kind == ScheduleOpKind::kForward) {
      emit_load(op, first, last);
      for (int u = first; u < last; ++u) {
        emit_forward(UnitId(u), op);
        if (offloads(UnitId(u))) emit_transfer(InstructionKind::kOffload, UnitId(u), op);
      }
    } else {
      int reloaded = last;  // units from here on are on the device again
      for (int u = last - 1; u >= first; --u) {
        if (op.kind != ScheduleOpKind::kBackwardWeight) {
          for (; reloaded > std::max(first, u - lowering_.plan.prefetch); --reloaded) {
            if (offloads(UnitId(reloaded - 1)))
              emit_transfer(InstructionKind::kPrefetch, UnitId(reloaded - 1), op);
          }
        }
        if (op.kind != ScheduleOpKind::kBackwardWeight) emit_recompute(UnitId(u), op);
        emit_backward(UnitId(u), op);
      }
    }
  }

  Instruction compute(InstructionKind kind, UnitId u, const ScheduleOp& op) const {
    Instruction i;
    i.kind = kind;
    i.stage = op.stage;
    i.chunk = chunk_of(op.stage);
    i.micro_batch = op.micro_batch;
    i.unit = u;
    return i;
  }

  void add_external(UnitId u, std::int32_t micro_batch, AccessMode mode, bool backward_only) {
    const UnitClass& unit = lowering_.class_of(u);
    const UnitLayout& layout = lowering_.layout_of(u);
    for (std::size_t e = 0; e < unit.external_inputs.size(); ++e) {
      if (backward_only && !layout.external_for_backward[e]) continue;
      const UnitBuffer kind = unit.external_kinds[e] == ExternalInput::kTokens
                                  ? UnitBuffer::kTokens
                                  : UnitBuffer::kLabels;
      accesses_.push_back(use(c_, buffer(u, micro_batch, kind), mode));
    }
  }

  void emit_load(const ScheduleOp& op, int first, int last) {
    accesses_.clear();
    for (int u = first; u < last; ++u)
      add_external(UnitId(u), op.micro_batch, AccessMode::kWrite, false);
    if (accesses_.empty()) return;
    Instruction i = compute(InstructionKind::kLoadMicroBatch, UnitId(), op);
    draft_.add(i, accesses_);
  }

  void add_whole(BufferId b, AccessMode mode) {
    if (b.valid()) accesses_.push_back(use(c_, b, mode));
  }

  void add_workspace(std::int64_t bytes) {
    if (bytes > 0) accesses_.push_back({c_.workspace, 0, bytes, AccessMode::kWrite, false});
  }

  /// Of gathered groups the shard stands in until pass_gather.
  void add_parameters(UnitId u, ComputeParts parts) {
    const ProgramUnit& unit = program().units[u.index()];
    for (ParameterGroupId g : unit.groups) {
      for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
        if (unit.parameters[p].group != g || !reads_parameter(lowering_.layout_of(u), p, parts)) {
          continue;
        }
        add_whole(c_.parameters[g.index()], AccessMode::kRead);
        break;
      }
    }
  }

  void emit_forward(UnitId u, const ScheduleOp& op) {
    const UnitClass& unit = lowering_.class_of(u);
    const UnitLayout& layout = lowering_.layout_of(u);
    accesses_.clear();
    add_parameters(u, {.forward = true});
    add_external(u, op.micro_batch, AccessMode::kRead, false);
    for (const BoundarySource& s : program().units[u.index()].sources) {
      add_whole(buffer(s.unit, op.micro_batch, UnitBuffer::kOutput), AccessMode::kRead);
    }
    add_whole(buffer(u, op.micro_batch, UnitBuffer::kOutput), AccessMode::kWrite);
    add_whole(buffer(u, op.micro_batch, UnitBuffer::kSavedForInput), AccessMode::kWrite);
    add_whole(buffer(u, op.micro_batch, UnitBuffer::kSavedForWeight), AccessMode::kWrite);
    add_whole(buffer(u, op.micro_batch, UnitBuffer::kForwardForInput), AccessMode::kWrite);
    add_whole(buffer(u, op.micro_batch, UnitBuffer::kForwardForWeight), AccessMode::kWrite);
    if (unit.loss >= 0) {
      accesses_.push_back({c_.scalars, 0, static_cast<std::int64_t>(sizeof(double)),
                           op.micro_batch == 0 ? AccessMode::kWrite : AccessMode::kUpdate, false});
    }
    add_workspace(layout.forward_scratch_bytes + layout.workspace_bytes[0]);
    draft_.add(compute(InstructionKind::kForward, u, op), accesses_);
  }

  /// Whether what the unit saves goes to the host between forward and backward.
  bool offloads(UnitId u) const {
    const UnitLayout& layout = lowering_.layout_of(u);
    return train_ && lowering_.plan.offload.activations &&
           lowering_.class_of(u).kind == UnitKind::kBlock &&
           layout.saved_for_input_bytes + layout.saved_for_weight_bytes > 0;
  }

  void emit_transfer(InstructionKind kind, UnitId u, const ScheduleOp& op) {
    const bool out = kind == InstructionKind::kOffload;
    Instruction i = compute(kind, u, op);
    i.stream = out ? Stream::kD2h : Stream::kH2d;
    i.purpose = Purpose::kActivations;
    accesses_.clear();
    for (const auto& [device, host, reloaded] :
         {std::tuple{UnitBuffer::kSavedForInput, UnitBuffer::kHostForInput,
                     UnitBuffer::kReloadedForInput},
          {UnitBuffer::kSavedForWeight, UnitBuffer::kHostForWeight,
           UnitBuffer::kReloadedForWeight}}) {
      add_whole(buffer(u, op.micro_batch, out ? device : host), AccessMode::kRead);
      add_whole(buffer(u, op.micro_batch, out ? host : reloaded), AccessMode::kWrite);
    }
    draft_.add(i, accesses_);
  }

  /// What backward finds on the device of what forward saved.
  BufferId saved_buffer(UnitId u, const ScheduleOp& op, bool for_input) {
    if (offloads(u)) {
      return buffer(u, op.micro_batch,
                    for_input ? UnitBuffer::kReloadedForInput : UnitBuffer::kReloadedForWeight);
    }
    return buffer(u, op.micro_batch,
                  for_input ? UnitBuffer::kSavedForInput : UnitBuffer::kSavedForWeight);
  }

  void emit_recompute(UnitId u, const ScheduleOp& op) {
    const UnitLayout& layout = lowering_.layout_of(u);
    if (!recomputes(layout)) return;
    accesses_.clear();
    add_parameters(u, {.recompute = true});
    for (const BoundarySource& s : program().units[u.index()].sources)
      add_whole(buffer(s.unit, op.micro_batch, UnitBuffer::kOutput), AccessMode::kRead);
    add_whole(saved_buffer(u, op, true), AccessMode::kRead);
    add_whole(saved_buffer(u, op, false), AccessMode::kRead);
    add_whole(buffer(u, op.micro_batch, UnitBuffer::kRecomputedForInput), AccessMode::kWrite);
    add_whole(buffer(u, op.micro_batch, UnitBuffer::kRecomputedForWeight), AccessMode::kWrite);
    add_workspace(layout.forward_scratch_bytes + layout.workspace_bytes[0]);
    draft_.add(compute(InstructionKind::kRecompute, u, op), accesses_);
  }

  void emit_backward(UnitId u, const ScheduleOp& op) {
    const UnitClass& unit = lowering_.class_of(u);
    const UnitLayout& layout = lowering_.layout_of(u);
    const bool input = op.kind != ScheduleOpKind::kBackwardWeight;
    const bool weight = op.kind != ScheduleOpKind::kBackwardInput;
    const bool split = !(input && weight);
    if (input && !weight && !layout.has_backward_input) return;  // nothing upstream wants it
    accesses_.clear();
    add_parameters(u, {.input = input, .weight = weight});
    if (weight) add_external(u, op.micro_batch, AccessMode::kRead, true);
    const auto& sources = program().units[u.index()].sources;
    for (std::size_t b = 0; b < sources.size(); ++b) {
      if ((input && layout.boundary_input_for_input[b]) ||
          (weight && layout.boundary_input_for_weight[b])) {
        add_whole(buffer(sources[b].unit, op.micro_batch, UnitBuffer::kOutput), AccessMode::kRead);
      }
    }
    if (!layout.boundary_output_for_backward.empty() && layout.boundary_output_for_backward[0]) {
      add_whole(buffer(u, op.micro_batch, UnitBuffer::kOutput), AccessMode::kRead);
    }
    bool updates_statistics = false;
    for (const Operator& o : unit.operators)
      updates_statistics |= operator_spec(o.kind).backward_updates_statistics;
    if (input) {
      add_whole(saved_buffer(u, op, true), AccessMode::kRead);
      add_whole(buffer(u, op.micro_batch, UnitBuffer::kRecomputedForInput), AccessMode::kRead);
    }
    add_whole(buffer(u, op.micro_batch, UnitBuffer::kRecomputedForWeight), AccessMode::kRead);
    add_whole(saved_buffer(u, op, false),
              input && updates_statistics ? AccessMode::kUpdate : AccessMode::kRead);
    // A fused backward adds into the output gradient in place; a split one keeps it intact.
    add_whole(buffer(u, op.micro_batch, UnitBuffer::kOutputGradient),
              split ? AccessMode::kRead : AccessMode::kUpdate);
    if (input) {
      for (const BoundarySource& s : sources) {
        add_whole(buffer(s.unit, op.micro_batch, UnitBuffer::kOutputGradient), AccessMode::kWrite);
      }
    }
    if (split) {
      add_whole(buffer(u, op.micro_batch, UnitBuffer::kStash),
                input ? AccessMode::kWrite : AccessMode::kRead);
    }
    if (weight) {
      for (ParameterGroupId g : program().units[u.index()].groups) {
        const ParameterGroup& group = program().parameter_groups[g.index()];
        if (!group.trainable) continue;
        const std::int32_t sum = group.reduced_each_micro_batch ? op.micro_batch : -1;
        const auto [gradient, started] = gradient_of(g, sum);
        add_whole(gradient, started ? AccessMode::kUpdate : AccessMode::kWrite);
      }
    }
    const BackwardLayout& backward = split ? layout.split : layout.fused;
    add_workspace(
        (input ? backward.scratch_bytes : 0) +
        std::max(input ? layout.workspace_bytes[1] : 0, weight ? layout.workspace_bytes[2] : 0));
    const InstructionKind kind = !split  ? InstructionKind::kBackward
                                 : input ? InstructionKind::kBackwardInput
                                         : InstructionKind::kBackwardWeight;
    draft_.add(compute(kind, u, op), accesses_);
  }

  /// The buffer that sums the group's gradient over the step (micro_batch -1) or one micro-batch,
  /// and whether the sum has started.
  std::pair<BufferId, bool> gradient_of(ParameterGroupId g, std::int32_t micro_batch) {
    const auto [sum, made] = sums_.try_emplace({g.value, micro_batch}, BufferId());
    if (!made) return {sum->second, true};
    Buffer b;
    b.role = micro_batch < 0 ? BufferRole::kGradients : BufferRole::kUnitGradients;
    b.parameter_group = g;
    b.micro_batch = micro_batch;
    b.bytes = program().parameter_groups[g.index()].padded_elements *
              dtype_size(program().job.precision.gradient);
    c_.result.buffers.push_back(b);
    sum->second = BufferId(c_.result.buffers.size() - 1);
    if (micro_batch < 0) c_.gradients[g.index()] = sum->second;
    return {sum->second, false};
  }

  Lowering& lowering_;
  ClassDraft& c_;
  Draft& draft_;
  bool train_;
  std::map<std::pair<std::int32_t, std::int32_t>, BufferId> sums_;  // (group, micro-batch)
  std::vector<Access> accesses_;
};

}  // namespace

void pass_compute(Lowering& lowering, ClassDraft& c) {
  ComputeEmitter(lowering, c, ProgramKind::kTrainStep).emit(c.train);
  // Evaluation has lifetimes of its own, hence buffers of its own.
  c.unit_buffers.clear();
  std::fill(c.first_slot.begin(), c.first_slot.end(), -1);
  ComputeEmitter(lowering, c, ProgramKind::kEvalStep).emit(c.eval);
}

}  // namespace bayplan
