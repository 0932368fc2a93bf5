// From finished gradients to updated parameters: data-parallel reduction, tied copies, the
// global norm, the optimizer, and the gather of updated shards (ZeRO 1 and 2).
#include <vector>

#include "planner/program/lowering.h"

namespace bayplan {
namespace {

Instruction on_group(InstructionKind kind, Stream stream, Purpose purpose,
                     CommunicationGroupId group, ParameterGroupId parameters = {}) {
  Instruction i;
  i.kind = kind;
  i.stream = stream;
  i.purpose = purpose;
  i.group = group;
  i.parameter_group = parameters;
  return i;
}

struct Updater {
  Lowering& lowering;
  ClassDraft& c;
  std::int64_t replicas = lowering.program.mesh.dp * lowering.program.mesh.cp;

  const ParameterGroup& group(ParameterGroupId g) const {
    return lowering.program.parameter_groups[g.index()];
  }
  std::int64_t slice_elements(ParameterGroupId g) const {
    return group(g).padded_elements / replicas;
  }
  bool sharded(ParameterGroupId g) const { return group(g).shard_axes != 0 && replicas > 1; }
  std::int64_t gradient_size() const { return dtype_size(lowering.program.job.precision.gradient); }
  std::int64_t state_size() const { return dtype_size(lowering.program.job.precision.state); }

  /// The rank's part of a gradient buffer: all of one that holds just the shard.
  Access own_slice(BufferId b, AccessMode mode) const {
    const Buffer& buffer = c.result.buffers[b.index()];
    const std::int64_t slice = slice_elements(buffer.parameter_group) * gradient_size();
    return buffer.bytes == slice ? use(c, b, mode) : use_slice(b, slice, mode);
  }

  void reduce(Draft& draft, BufferId gradient) const {
    const Buffer& buffer = c.result.buffers[gradient.index()];
    const ParameterGroupId g = buffer.parameter_group;
    const InstructionKind kind =
        sharded(g) ? InstructionKind::kReduceScatter : InstructionKind::kAllReduce;
    Instruction i = on_group(kind, Stream::kReduce, Purpose::kGrads, lowering.data_parallel, g);
    i.micro_batch = buffer.micro_batch;
    draft.add(i, {use(c, gradient, AccessMode::kUpdate)});
  }

  /// Adds the reduced gradient of one micro-batch to the step's, which the first one starts.
  void accumulate(Draft& draft, BufferId unit_gradient) {
    const Buffer buffer = c.result.buffers[unit_gradient.index()];
    const ParameterGroupId g = buffer.parameter_group;
    BufferId& total = c.gradients[g.index()];
    const bool first = !total.valid();
    if (first) {
      Buffer b;
      b.role = BufferRole::kGradients;
      b.parameter_group = g;
      b.bytes = group(g).gradient_elements * gradient_size();
      c.result.buffers.push_back(b);
      total = BufferId(c.result.buffers.size() - 1);
    }
    Instruction i = on_group(InstructionKind::kAccumulate, Stream::kCompute, Purpose::kGrads,
                             lowering.data_parallel, g);
    i.micro_batch = buffer.micro_batch;
    const AccessMode mode = first ? AccessMode::kWrite : AccessMode::kUpdate;
    if (sharded(g)) {
      draft.add(i, {own_slice(unit_gradient, AccessMode::kRead), own_slice(total, mode)});
    } else {
      draft.add(i, {use(c, unit_gradient, AccessMode::kRead), use(c, total, mode)});
    }
  }

  void reduce_tied(Draft& draft, ParameterGroupId g) const {
    const BufferId gradient = c.gradients[g.index()];
    const Access access = sharded(g) ? own_slice(gradient, AccessMode::kUpdate)
                                     : use(c, gradient, AccessMode::kUpdate);
    Instruction i = on_group(InstructionKind::kAllReduce, Stream::kReduce, Purpose::kTiedGrads,
                             lowering.embedding, g);
    draft.add(i, {access});
  }

  void norm(Draft& draft, bool holds_loss) const {
    const std::int64_t all = c.result.buffers[c.scalars.index()].bytes;
    const std::int64_t first = holds_loss ? static_cast<std::int64_t>(sizeof(double)) : 0;
    std::vector<Access> accesses{{c.scalars, first, all - first, AccessMode::kWrite, false}};
    for (ParameterGroupId g : c.groups) {
      if (!group(g).trainable || group(g).pp_coordinates.front() != c.result.pp) continue;
      accesses.push_back(own_slice(c.gradients[g.index()], AccessMode::kRead));
    }
    draft.add(on_group(InstructionKind::kGradientNorm, Stream::kCompute, Purpose::kNorm,
                       lowering.data_parallel),
              accesses);
    if (lowering.program.world_size() > 1) {
      draft.add(
          on_group(InstructionKind::kAllReduce, Stream::kReduce, Purpose::kNorm, lowering.world),
          {use(c, c.scalars, AccessMode::kUpdate)});
    }
  }

  /// The rank's part of the parameters.
  Access parameter_part(ParameterGroupId g, AccessMode mode) const {
    const BufferId parameters = c.parameters[g.index()];
    return sharded(g) && !group(g).gathered
               ? use_slice(parameters, slice_elements(g) * dtype_size(group(g).dtype), mode)
               : use(c, parameters, mode);
  }

  Access host_copy(ParameterGroupId g, BufferRole role, std::int64_t element, AccessMode mode,
                   BufferId& buffer) const {
    if (!buffer.valid()) {
      Buffer b;
      b.tier = Tier::kHost;
      b.role = role;
      b.parameter_group = g;
      b.bytes = group(g).shard_elements * element;
      c.result.buffers.push_back(b);
      buffer = BufferId(c.result.buffers.size() - 1);
    }
    return use(c, buffer, mode);
  }

  void transfer(Draft& draft, InstructionKind kind, Purpose purpose, ParameterGroupId g,
                const Access& from, const Access& to) const {
    const Stream stream = kind == InstructionKind::kOffload ? Stream::kD2h : Stream::kH2d;
    draft.add(on_group(kind, stream, purpose, lowering.data_parallel, g), {from, to});
  }

  /// The step of a group whose state is in host memory: the gradient goes there, the updated
  /// parameters come back. Without master weights the parameters make both ways.
  void step_on_host(Draft& draft, ParameterGroupId g) const {
    const bool has_master = c.master[g.index()].valid();
    const std::int64_t element = dtype_size(group(g).dtype);
    const BufferId device_gradient = c.gradients[g.index()];
    BufferId gradient, parameters;
    transfer(draft, InstructionKind::kOffload, Purpose::kGrads, g,
             sharded(g) ? own_slice(device_gradient, AccessMode::kRead)
                        : use(c, device_gradient, AccessMode::kRead),
             host_copy(g, BufferRole::kGradients, gradient_size(), AccessMode::kWrite, gradient));
    if (!has_master) {
      transfer(draft, InstructionKind::kOffload, Purpose::kParams, g,
               parameter_part(g, AccessMode::kRead),
               host_copy(g, BufferRole::kParameters, element, AccessMode::kWrite, parameters));
    }
    std::vector<Access> accesses{
        use(c, c.scalars, AccessMode::kRead),
        host_copy(g, BufferRole::kGradients, gradient_size(), AccessMode::kRead, gradient)};
    for (const auto* state : {&c.master, &c.moment1, &c.moment2}) {
      const BufferId b = (*state)[g.index()];
      if (b.valid()) accesses.push_back(use(c, b, AccessMode::kUpdate));
    }
    accesses.push_back(host_copy(g, BufferRole::kParameters, element,
                                 has_master ? AccessMode::kWrite : AccessMode::kUpdate,
                                 parameters));
    draft.add(on_group(InstructionKind::kOptimizerStep, Stream::kHost, Purpose::kNone,
                       lowering.data_parallel, g),
              accesses);
    transfer(draft, InstructionKind::kPrefetch, Purpose::kParams, g,
             host_copy(g, BufferRole::kParameters, element, AccessMode::kRead, parameters),
             parameter_part(g, AccessMode::kWrite));
    gather_updated(draft, g);
  }

  void gather_updated(Draft& draft, ParameterGroupId g) const {
    if (!sharded(g) || group(g).gathered) return;
    draft.add(on_group(InstructionKind::kAllGather, Stream::kGather, Purpose::kParams,
                       lowering.data_parallel, g),
              {use(c, c.parameters[g.index()], AccessMode::kUpdate)});
  }

  void step(Draft& draft, ParameterGroupId g) const {
    if (group(g).state_tier == Tier::kHost) return step_on_host(draft, g);
    const bool shard = sharded(g);
    const std::int64_t state_bytes = group(g).shard_elements * state_size();
    const BufferId gradient = c.gradients[g.index()];
    std::vector<Access> accesses{
        use(c, c.scalars, AccessMode::kRead),
        shard ? own_slice(gradient, AccessMode::kRead) : use(c, gradient, AccessMode::kRead)};
    for (const auto* state : {&c.master, &c.moment1, &c.moment2}) {
      const BufferId b = (*state)[g.index()];
      if (b.valid()) accesses.push_back({b, 0, state_bytes, AccessMode::kUpdate, false});
    }
    const bool has_master = c.master[g.index()].valid();
    accesses.push_back(parameter_part(g, has_master ? AccessMode::kWrite : AccessMode::kUpdate));
    draft.add(on_group(InstructionKind::kOptimizerStep, Stream::kCompute, Purpose::kNone,
                       lowering.data_parallel, g),
              accesses);
    gather_updated(draft, g);
  }
};

/// Puts each gradient's reduction right behind the backward that finishes it, so that it overlaps
/// with the backward of earlier units. What is reduced each micro-batch is accumulated behind the
/// next reduction, or the compute stream would wait for each.
void insert_reductions(Updater& u, Draft& draft) {
  std::vector<std::int32_t> last(u.c.result.buffers.size(), -1);
  for (std::size_t i = 0; i < draft.list.instructions.size(); ++i) {
    const Range range = draft.list.instructions[i].accesses;
    for (std::int32_t a = range.begin; a < range.end; ++a) {
      const Access& access = draft.list.accesses[static_cast<std::size_t>(a)];
      const Buffer& b = u.c.result.buffers[access.buffer.index()];
      if (b.role == BufferRole::kGradients || b.role == BufferRole::kUnitGradients)
        last[access.buffer.index()] = static_cast<std::int32_t>(i);
    }
  }
  std::vector<std::vector<BufferId>> after(draft.list.instructions.size());
  for (std::size_t b = 0; b < last.size(); ++b) {
    if (last[b] >= 0) after[static_cast<std::size_t>(last[b])].push_back(BufferId(b));
  }
  std::vector<Instruction> before = std::move(draft.list.instructions);
  draft.list.instructions.clear();
  draft.list.instructions.reserve(before.size() + u.c.groups.size());
  std::vector<BufferId> reduced;  // behind one instruction, to be accumulated
  for (std::size_t i = 0; i < before.size(); ++i) {
    draft.list.instructions.push_back(before[i]);
    if (after[i].empty()) continue;
    for (BufferId b : after[i]) u.reduce(draft, b);
    for (BufferId b : reduced) u.accumulate(draft, b);
    reduced.clear();
    for (BufferId b : after[i]) {
      if (u.c.result.buffers[b.index()].role == BufferRole::kUnitGradients) reduced.push_back(b);
    }
  }
  for (BufferId b : reduced) u.accumulate(draft, b);
}

Instruction end_step() {
  Instruction i;
  i.kind = InstructionKind::kEndStep;
  return i;
}

}  // namespace

void pass_update(Lowering& lowering, ClassDraft& c) {
  Updater u{lowering, c};
  bool holds_loss = false;
  for (UnitId unit : c.units) holds_loss |= lowering.class_of(unit).loss >= 0;

  Draft& train = c.draft(ProgramKind::kTrainStep);
  if (u.replicas > 1) insert_reductions(u, train);
  for (ParameterGroupId g : c.groups) {
    if (u.group(g).trainable && u.group(g).pp_coordinates.size() > 1) u.reduce_tied(train, g);
  }
  u.norm(train, holds_loss);
  for (ParameterGroupId g : c.groups) {
    if (u.group(g).trainable) u.step(train, g);
  }
  train.add(end_step(), {use(c, c.scalars, AccessMode::kRead)});

  Draft& eval = c.draft(ProgramKind::kEvalStep);
  const Access loss{c.scalars, 0, static_cast<std::int64_t>(sizeof(double)), AccessMode::kWrite,
                    false};
  if (!holds_loss) {
    eval.add(on_group(InstructionKind::kGradientNorm, Stream::kCompute, Purpose::kLoss,
                      lowering.data_parallel),
             {loss});
  }
  if (lowering.program.world_size() > 1) {
    Access update = loss;
    update.mode = AccessMode::kUpdate;
    eval.add(on_group(InstructionKind::kAllReduce, Stream::kReduce, Purpose::kLoss, lowering.world),
             {update});
  }
  Access read = loss;
  read.mode = AccessMode::kRead;
  eval.add(end_step(), {read});
}

void pass_checkpoint(Lowering& lowering, ClassDraft& c) {
  Updater u{lowering, c};
  Draft& load = c.draft(ProgramKind::kLoad);
  Draft& save = c.draft(ProgramKind::kSave);
  for (ParameterGroupId g : c.groups) {
    std::vector<Access> writes{use(c, c.parameters[g.index()], AccessMode::kWrite)};
    const BufferId parameters = c.parameters[g.index()];
    std::vector<Access> reads{u.group(g).gathered
                                  ? use(c, parameters, AccessMode::kRead)
                                  : use_slice(parameters,
                                              u.slice_elements(g) * dtype_size(u.group(g).dtype),
                                              AccessMode::kRead)};
    for (const auto* state : {&c.master, &c.moment1, &c.moment2}) {
      const BufferId b = (*state)[g.index()];
      if (!b.valid()) continue;
      writes.push_back(use(c, b, AccessMode::kWrite));
      reads.push_back(u.sharded(g)
                          ? use(c, b, AccessMode::kRead)
                          : use_slice(b, u.slice_elements(g) * u.state_size(), AccessMode::kRead));
    }
    Instruction i;
    i.kind = InstructionKind::kInitialize;
    i.parameter_group = g;
    i.group = lowering.data_parallel;
    load.add(i, writes);
    // Of several copies of a tied weight, the first pipeline rank's is saved.
    if (u.group(g).pp_coordinates.front() != c.result.pp) continue;
    save.add(on_group(InstructionKind::kOffload, Stream::kD2h, Purpose::kCheckpoint,
                      lowering.data_parallel, g),
             reads);
  }
  load.add(end_step(), std::span<const Access>());
  save.add(end_step(), std::span<const Access>());
}

}  // namespace bayplan
