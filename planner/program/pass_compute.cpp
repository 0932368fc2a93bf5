// Turns the schedule's order into instructions: loads, per-unit compute, and the sends and
// receives between stages. The sends after one op and the receives before the next form one
// group: with unbuffered messages, emitting them one by one deadlocks 1F1B.
#include <algorithm>
#include <vector>

#include "planner/program/lowering.h"

namespace bayplan {
namespace {

/// Emits one sub-program's compute for one class.
class ComputeEmitter {
 public:
  ComputeEmitter(Lowering& lowering, ClassDraft& c, ProgramKind kind)
      : lowering_(lowering), c_(c), draft_(c.draft(kind)) {
    const Program& program = lowering.program;
    consumer_.assign(program.units.size(), UnitId());
    for (std::size_t u = 0; u < program.units.size(); ++u) {
      for (const BoundarySource& s : program.units[u].sources)
        consumer_[s.unit.index()] = UnitId(u);
    }
    gradient_started_.assign(program.parameter_groups.size(), false);
  }

  void emit(const std::vector<ScheduleOp>& order) {
    for (const ScheduleOp& op : order) {
      emit_messages(&last_, &op);
      emit_op(op);
      last_ = op;
      has_last_ = true;
    }
    emit_messages(&last_, nullptr);
  }

 private:
  const Program& program() const { return lowering_.program; }
  std::int32_t stage_of(UnitId u) const { return lowering_.unit_stage[u.index()]; }
  bool here(UnitId u) const {
    return program().stage_rank[static_cast<std::size_t>(stage_of(u))] == c_.result.pp;
  }
  BufferId buffer(UnitId u, std::int32_t micro_batch, UnitBuffer kind) {
    return unit_buffer(lowering_, c_, u, micro_batch, kind);
  }

  /// Units of `stage`, in model order.
  std::pair<int, int> units_of(std::int32_t stage) const {
    const StagePlan& s = lowering_.plan.stages[static_cast<std::size_t>(stage)];
    return {s.first_unit, s.first_unit + s.unit_count};
  }

  struct Message {
    Instruction instruction;
    Access access;
  };

  Message message(InstructionKind kind, std::int32_t stage, std::int32_t peer, UnitId producer,
                  std::int32_t micro_batch, UnitBuffer which, AccessMode mode) {
    Instruction i;
    i.kind = kind;
    i.stream = Stream::kP2p;
    i.stage = stage;
    i.chunk = 0;
    i.peer_stage = peer;
    i.unit = producer;
    i.boundary = 0;
    i.micro_batch = micro_batch;
    return {i, use(c_, buffer(producer, micro_batch, which), mode)};
  }

  /// Sends that follow `op`.
  void collect_posts(const ScheduleOp& op, std::vector<Message>& out) {
    const auto [first, last] = units_of(op.stage);
    for (int u = first; u < last; ++u) {
      if (op.kind == ScheduleOpKind::kForward) {
        const UnitId reader = consumer_[static_cast<std::size_t>(u)];
        if (reader.valid() && !here(reader)) {
          out.push_back(message(InstructionKind::kSendActivation, op.stage, stage_of(reader),
                                UnitId(u), op.micro_batch, UnitBuffer::kOutput, AccessMode::kRead));
        }
      } else if (op.kind != ScheduleOpKind::kBackwardWeight) {
        for (const BoundarySource& s : program().units[static_cast<std::size_t>(u)].sources) {
          if (here(s.unit)) continue;
          out.push_back(message(InstructionKind::kSendGradient, op.stage, stage_of(s.unit), s.unit,
                                op.micro_batch, UnitBuffer::kOutputGradient, AccessMode::kRead));
        }
      }
    }
  }

  /// Receives that `op` needs.
  void collect_pres(const ScheduleOp& op, std::vector<Message>& out) {
    const auto [first, last] = units_of(op.stage);
    for (int u = first; u < last; ++u) {
      if (op.kind == ScheduleOpKind::kForward) {
        for (const BoundarySource& s : program().units[static_cast<std::size_t>(u)].sources) {
          if (here(s.unit)) continue;
          out.push_back(message(InstructionKind::kRecvActivation, op.stage, stage_of(s.unit),
                                s.unit, op.micro_batch, UnitBuffer::kOutput, AccessMode::kWrite));
        }
      } else if (op.kind != ScheduleOpKind::kBackwardWeight) {
        const UnitId reader = consumer_[static_cast<std::size_t>(u)];
        if (reader.valid() && !here(reader)) {
          out.push_back(message(InstructionKind::kRecvGradient, op.stage, stage_of(reader),
                                UnitId(u), op.micro_batch, UnitBuffer::kOutputGradient,
                                AccessMode::kWrite));
        }
      }
    }
  }

  void emit_messages(const ScheduleOp* before, const ScheduleOp* after) {
    messages_.clear();
    if (has_last_) collect_posts(*before, messages_);
    if (after != nullptr) collect_pres(*after, messages_);
    const int fuse = messages_.size() > 1 ? draft_.next_fuse++ : -1;
    for (Message& m : messages_) {
      m.instruction.fuse = fuse;
      draft_.add(m.instruction, {m.access});
    }
  }

  void emit_op(const ScheduleOp& op) {
    const auto [first, last] = units_of(op.stage);
    if (op.kind == ScheduleOpKind::kForward) {
      emit_load(op, first, last);
      for (int u = first; u < last; ++u) emit_forward(UnitId(u), op);
    } else {
      for (int u = last - 1; u >= first; --u) emit_backward(UnitId(u), op);
    }
  }

  Instruction compute(InstructionKind kind, UnitId u, const ScheduleOp& op) const {
    Instruction i;
    i.kind = kind;
    i.stage = op.stage;
    i.chunk = 0;
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

  void add_parameters(UnitId u) {
    for (ParameterGroupId g : program().units[u.index()].groups) {
      add_whole(c_.parameters[g.index()], AccessMode::kRead);
    }
  }

  void emit_forward(UnitId u, const ScheduleOp& op) {
    const UnitClass& unit = lowering_.class_of(u);
    const UnitLayout& layout = lowering_.layout_of(u);
    accesses_.clear();
    add_parameters(u);
    add_external(u, op.micro_batch, AccessMode::kRead, false);
    for (const BoundarySource& s : program().units[u.index()].sources) {
      add_whole(buffer(s.unit, op.micro_batch, UnitBuffer::kOutput), AccessMode::kRead);
    }
    add_whole(buffer(u, op.micro_batch, UnitBuffer::kOutput), AccessMode::kWrite);
    add_whole(buffer(u, op.micro_batch, UnitBuffer::kSavedForInput), AccessMode::kWrite);
    add_whole(buffer(u, op.micro_batch, UnitBuffer::kSavedForWeight), AccessMode::kWrite);
    if (unit.loss >= 0) {
      accesses_.push_back({c_.scalars, 0, static_cast<std::int64_t>(sizeof(double)),
                           op.micro_batch == 0 ? AccessMode::kWrite : AccessMode::kUpdate, false});
    }
    add_workspace(layout.forward_scratch_bytes + layout.workspace_bytes[0]);
    draft_.add(compute(InstructionKind::kForward, u, op), accesses_);
  }

  void emit_backward(UnitId u, const ScheduleOp& op) {
    const UnitClass& unit = lowering_.class_of(u);
    const UnitLayout& layout = lowering_.layout_of(u);
    const bool input = op.kind != ScheduleOpKind::kBackwardWeight;
    const bool weight = op.kind != ScheduleOpKind::kBackwardInput;
    const bool split = !(input && weight);
    if (input && !weight && !layout.has_backward_input) return;  // nothing upstream wants it
    accesses_.clear();
    add_parameters(u);
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
    if (input) add_whole(buffer(u, op.micro_batch, UnitBuffer::kSavedForInput), AccessMode::kRead);
    add_whole(buffer(u, op.micro_batch, UnitBuffer::kSavedForWeight),
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
        if (!program().parameter_groups[g.index()].trainable) continue;
        const BufferId gradient = gradient_buffer(g);
        add_whole(gradient,
                  gradient_started_[g.index()] ? AccessMode::kUpdate : AccessMode::kWrite);
        gradient_started_[g.index()] = true;
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

  BufferId gradient_buffer(ParameterGroupId g) {
    if (!c_.gradients[g.index()].valid()) {
      Buffer b;
      b.role = BufferRole::kGradients;
      b.parameter_group = g;
      b.bytes = program().parameter_groups[g.index()].padded_elements *
                dtype_size(program().job.precision.gradient);
      c_.result.buffers.push_back(b);
      c_.gradients[g.index()] = BufferId(c_.result.buffers.size() - 1);
    }
    return c_.gradients[g.index()];
  }

  Lowering& lowering_;
  ClassDraft& c_;
  Draft& draft_;
  std::vector<UnitId> consumer_;  // per unit; units with several readers are refused earlier
  std::vector<bool> gradient_started_;
  std::vector<Message> messages_;
  std::vector<Access> accesses_;
  ScheduleOp last_;
  bool has_last_ = false;
};

}  // namespace

void pass_compute(Lowering& lowering, ClassDraft& c) {
  ComputeEmitter(lowering, c, ProgramKind::kTrainStep).emit(c.order);
  // Evaluation has lifetimes of its own, hence buffers of its own.
  c.unit_buffers.clear();
  std::fill(c.first_slot.begin(), c.first_slot.end(), -1);
  std::vector<ScheduleOp> forwards;
  for (const ScheduleOp& op : c.order) {
    if (op.kind == ScheduleOpKind::kForward) forwards.push_back(op);
  }
  ComputeEmitter(lowering, c, ProgramKind::kEvalStep).emit(forwards);
}

}  // namespace bayplan
