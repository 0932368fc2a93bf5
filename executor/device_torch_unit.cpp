#include "executor/device_torch_unit.h"

#include <algorithm>
#include <cstring>

#include "executor/ops/op_arguments.h"
#include "executor/ops/thread_team.h"
#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

/// Operator ids of one unit in the key of random draws.
constexpr std::uint32_t kOperatorsPerUnit = 64;

std::byte* buffer_start(const ComputeCall& call, const Buffer& buffer) {
  return call.arenas[static_cast<std::size_t>(buffer.tier)] + buffer.offset;
}

/// Addresses of the buffers that the instruction may touch, by region.
class UnitMemory {
 public:
  UnitMemory(const ComputeCall& call, const ProgramUnit& unit, const UnitClass& unit_class)
      : call_(call), unit_(unit), class_(unit_class) {}

  void* at(const Placement& placement) const {
    if (placement.region == Region::kNone) return nullptr;
    return start(placement) + placement.offset;
  }

  /// Start of the parameter's elements in a buffer of `role`, or in what stands in for it while
  /// the unit computes.
  void* parameter(BufferRole role, std::size_t index, DType type) const {
    const ParameterRef& ref = unit_.parameters[index];
    const ParameterGroup& group = call_.program->parameter_groups[ref.group.index()];
    if (role == BufferRole::kParameters && group.gathered) role = BufferRole::kGatheredParameters;
    if (role == BufferRole::kGradients && group.reduced_each_micro_batch)
      role = BufferRole::kUnitGradients;
    const Access* access = find_access(call_, role, ref.group);
    BAYPLAN_CHECK(access != nullptr, "instruction without its parameter group");
    const std::int64_t offset = group.parameters[static_cast<std::size_t>(ref.position)].offset;
    return buffer_start(call_, buffer_of(*access)) + offset * dtype_size(type);
  }

 private:
  const Buffer& buffer_of(const Access& access) const {
    return call_.rank_class->buffers[access.buffer.index()];
  }

  /// The accessed buffer that holds `region` of `unit`.
  std::byte* unit_buffer(Region region, std::int32_t index, UnitId unit) const {
    const Range range = call_.instruction->accesses;
    for (std::int32_t a = range.begin; a < range.end; ++a) {
      const Buffer& b = buffer_of(call_.list->accesses[static_cast<std::size_t>(a)]);
      if (b.region == region && b.region_index == index && b.unit == unit) {
        return buffer_start(call_, b);
      }
    }
    BAYPLAN_CHECK(false, "instruction without a buffer of its unit");
  }

  std::byte* role_buffer(BufferRole role) const {
    const Access* access = find_access(call_, role);
    BAYPLAN_CHECK(access != nullptr, "instruction without workspace or scalars");
    return buffer_start(call_, buffer_of(*access));
  }

  std::byte* start(const Placement& p) const {
    const UnitId own = call_.instruction->unit;
    const auto index = static_cast<std::size_t>(p.index);
    switch (p.region) {
      case Region::kNone:
        break;
      case Region::kExternal: {
        const Access* access =
            find_access(call_, p.region, static_cast<std::int32_t>(class_.external_kinds[index]));
        BAYPLAN_CHECK(access != nullptr, "instruction without its external input");
        return buffer_start(call_, buffer_of(*access));
      }
      case Region::kBoundaryInput:
        return unit_buffer(Region::kBoundaryOutput, unit_.sources[index].output,
                           unit_.sources[index].unit);
      case Region::kBoundaryInputGradient:
        return unit_buffer(Region::kBoundaryOutputGradient, unit_.sources[index].output,
                           unit_.sources[index].unit);
      case Region::kBoundaryOutput:
      case Region::kBoundaryOutputGradient:
        return unit_buffer(p.region, p.index, own);
      case Region::kSavedForInput:
      case Region::kSavedForWeight:
      case Region::kGradientStash:
      case Region::kRecomputedForInput:
      case Region::kRecomputedForWeight:
        return unit_buffer(p.region, 0, own);
      case Region::kScratch:
        return role_buffer(BufferRole::kWorkspace);
      case Region::kLoss:
        return role_buffer(BufferRole::kScalars);
    }
    BAYPLAN_CHECK(false, "placement without region");
  }

  const ComputeCall& call_;
  const ProgramUnit& unit_;
  const UnitClass& class_;
};

/// Walks one unit's operators.
class UnitRun {
 public:
  UnitRun(const ComputeCall& call, int threads, OpCall& op_call)
      : call_(call),
        program_(*call.program),
        unit_(program_.units[call.instruction->unit.index()]),
        class_(program_.graph.classes[static_cast<std::size_t>(unit_.unit_class)]),
        layout_(program_.layout_of(call.instruction->unit)),
        memory_(call, unit_, class_),
        op_(op_call) {
    op_.precision = program_.job.precision;
    op_.threads = threads;
    op_.keep_for_backward = call.kind != ProgramKind::kEvalStep;
  }

  void forward() {
    const bool again = call_.instruction->kind == InstructionKind::kRecompute;
    for (std::size_t o = 0; o < class_.operators.size(); ++o) {
      if (again && !layout_.reruns[o]) continue;
      start(o);
      op_kernel(op_.op->kind).forward(op_);
    }
  }

  void backward(const BackwardLayout& layout, bool input, bool weight) {
    for (std::size_t o = class_.operators.size(); o-- > 0;) {
      const Operator& op = class_.operators[o];
      const OpKernel& kernel = op_kernel(op.kind);
      const bool runs_input = input && kernel.backward_input != nullptr &&
                              std::any_of(layout.operators[o].inputs.begin(),
                                          layout.operators[o].inputs.end(), has_work);
      const bool runs_weight = weight && kernel.backward_weight != nullptr && trainable(op);
      if (!runs_input && !runs_weight) continue;
      start(o);
      add_gradients(layout.operators[o], runs_input, runs_weight);
      if (runs_input) kernel.backward_input(op_);
      if (runs_weight) kernel.backward_weight(op_);
    }
  }

 private:
  static bool has_work(const GradientSlot& slot) {
    return slot.action != GradientSlot::Action::kNone &&
           slot.action != GradientSlot::Action::kAlias;
  }

  bool trainable(const Operator& op) const {
    return std::any_of(op.parameters.begin(), op.parameters.end(), [&](std::int32_t p) {
      return class_.parameters[static_cast<std::size_t>(p)].trainable;
    });
  }

  OpTensor tensor(std::int32_t index, const Placement& placement) const {
    const TensorShape& shape = layout_.shapes[static_cast<std::size_t>(index)];
    return {memory_.at(placement), shape.shape, element_dtype(shape.element, op_.precision)};
  }

  /// Arguments that this phase reads or writes; the others stay null, since the instruction may
  /// have no access to them.
  void start(std::size_t o) {
    const Operator& op = class_.operators[o];
    op_.op = &op;
    op_.inputs.clear();
    op_.outputs.clear();
    op_.statistics.clear();
    op_.parameters.clear();
    op_.output_gradients.clear();
    op_.input_gradients.clear();
    op_.parameter_gradients.clear();
    const Needs needs = needs_of(op);
    add_tensors(op.inputs, needs.inputs, op_.inputs);
    add_tensors(op.outputs, needs.outputs, op_.outputs);
    add_tensors(op.statistics, needs.statistics, op_.statistics);
    for (std::size_t i = 0; i < op.parameters.size(); ++i) {
      const auto p = static_cast<std::size_t>(op.parameters[i]);
      const DType type = op_.precision.compute;
      void* data =
          has(needs.parameters, i) ? memory_.parameter(BufferRole::kParameters, p, type) : nullptr;
      op_.parameters.push_back({data, class_.parameters[p].shape, type});
    }
    set_random(o);
  }

  static bool has(std::uint8_t mask, std::size_t i) { return ((mask >> i) & 1u) != 0; }

  Needs needs_of(const Operator& op) const {
    const OperatorSpec& spec = operator_spec(op.kind);
    const InstructionKind kind = call_.instruction->kind;
    if (kind == InstructionKind::kForward || kind == InstructionKind::kRecompute) {
      return {0xFF, 0xFF, 0xFF, 0xFF, false};
    }
    Needs needs;
    const auto join = [&](const Needs& more) {
      needs.inputs |= more.inputs;
      needs.outputs |= more.outputs;
      needs.statistics |= more.statistics;
      needs.parameters |= more.parameters;
    };
    if (kind != InstructionKind::kBackwardWeight) join(spec.backward_input);
    if (kind != InstructionKind::kBackwardInput) join(spec.backward_weight);
    return needs;
  }

  void add_tensors(const std::vector<std::int32_t>& indices, std::uint8_t needed,
                   std::vector<OpTensor>& out) const {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const Placement none;
      const auto t = static_cast<std::size_t>(indices[i]);
      out.push_back(tensor(indices[i], has(needed, i) ? layout_.values[t] : none));
    }
  }

  void add_gradients(const OperatorGradients& gradients, bool input, bool weight) {
    const Operator& op = *op_.op;
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      op_.output_gradients.push_back(tensor(op.outputs[i], gradients.outputs[i]));
    }
    for (std::size_t i = 0; input && i < op.inputs.size(); ++i) {
      const GradientSlot& slot = gradients.inputs[i];
      if (!has_work(slot)) {
        op_.input_gradients.push_back({slot.action, {}, nullptr});
        continue;
      }
      op_.input_gradients.push_back(
          {slot.action, tensor(op.inputs[i], slot.target), memory_.at(slot.residual)});
    }
    for (std::size_t i = 0; weight && i < op.parameters.size(); ++i) {
      const auto p = static_cast<std::size_t>(op.parameters[i]);
      const DType type = op_.precision.gradient;
      op_.parameter_gradients.push_back(
          {memory_.parameter(BufferRole::kGradients, p, type), class_.parameters[p].shape, type});
    }
  }

  void set_random(std::size_t o) {
    const Instruction& i = *call_.instruction;
    const TrainingJob& job = program_.job;
    op_.random = {};
    if (op_.op->kind != OperatorKind::kDropout) return;
    BAYPLAN_CHECK(o < kOperatorsPerUnit, "too many operators in a unit");
    const std::int64_t block = static_cast<std::int64_t>(i.micro_batch) * program_.mesh.dp +
                               program_.mesh.coordinate(call_.rank).dp();
    op_.random.seed = job.seed;
    op_.random.step = static_cast<std::uint64_t>(call_.step);
    op_.random.op = static_cast<std::uint32_t>(i.unit.value) * kOperatorsPerUnit +
                    static_cast<std::uint32_t>(o);
    op_.random.element_base = static_cast<std::uint64_t>(block * op_.inputs[0].shape.count());
    op_.random.dropout = op_.keep_for_backward ? job.dropout : 0.0;
  }

  const ComputeCall& call_;
  const Program& program_;
  const ProgramUnit& unit_;
  const UnitClass& class_;
  const UnitLayout& layout_;
  UnitMemory memory_;
  OpCall& op_;
};

/// The first contribution of a step to a gradient or to the loss is added to zero.
void zero_first_contributions(const ComputeCall& call, int threads) {
  const Range range = call.instruction->accesses;
  for (std::int32_t a = range.begin; a < range.end; ++a) {
    const Access& access = call.list->accesses[static_cast<std::size_t>(a)];
    const BufferRole role = call.rank_class->buffers[access.buffer.index()].role;
    if (access.mode != AccessMode::kWrite ||
        (role != BufferRole::kGradients && role != BufferRole::kUnitGradients &&
         role != BufferRole::kScalars)) {
      continue;
    }
    std::byte* start = access_data(call, access);
    parallel_ranges(threads, access.bytes, 4 * kElementGrain, [&](kernels::Range r) {
      std::memset(start + r.begin, 0, static_cast<std::size_t>(r.end - r.begin));
    });
  }
}

}  // namespace

void run_unit(const ComputeCall& call, int threads, OpCall& scratch) {
  const InstructionKind kind = call.instruction->kind;
  zero_first_contributions(call, threads);
  UnitRun run(call, threads, scratch);
  const UnitLayout& layout = call.program->layout_of(call.instruction->unit);
  if (kind == InstructionKind::kForward || kind == InstructionKind::kRecompute) {
    run.forward();
  } else if (kind == InstructionKind::kBackward) {
    run.backward(layout.fused, true, true);
  } else if (kind == InstructionKind::kBackwardInput) {
    run.backward(layout.split, true, false);
  } else {
    BAYPLAN_CHECK(kind == InstructionKind::kBackwardWeight, "not a unit's compute");
    run.backward(layout.split, false, true);
  }
}

}  // namespace bayplan::exec
