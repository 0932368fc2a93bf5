// Drives a one-rank Program through a CPU device without the runner, so that a test can look at
// gradients in the middle of a step. Also turns fused backwards into split ones.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "executor/device_torch.h"
#include "models/build_model.h"
#include "planner/program/lower.h"
#include "tests/unit/program/tiny_plans.h"

namespace bayplan::exec {

struct DeviceRun {
  Program program;
  std::unique_ptr<Device> device;
  std::array<std::byte*, kTierCount> arenas{};
  std::vector<std::int32_t> ids, labels;  // of one micro-batch, the same for all

  DeviceRun(Program p, int threads, std::vector<std::int32_t> tokens,
            std::vector<std::int32_t> targets)
      : program(std::move(p)),
        device(make_torch_cpu_device(0, threads)),
        ids(std::move(tokens)),
        labels(std::move(targets)) {
    arenas[0] = device->allocate_arena(Tier::kDevice, rank_class().arena_bytes[0]);
    device->attach(program, 0);
  }

  const RankClass& rank_class() const { return program.class_of(0); }

  /// Executes a sub-program up to, and without, the first instruction of kind `until`.
  void run(ProgramKind kind, InstructionKind until = InstructionKind::kEndStep,
           std::int64_t step = 0) {
    const InstructionList& list = program.list(0, kind);
    for (const Instruction& i : list.instructions) {
      if (i.kind == until) return;
      ComputeCall call;
      call.program = &program;
      call.rank_class = &rank_class();
      call.list = &list;
      call.instruction = &i;
      call.kind = kind;
      call.step = step;
      call.learning_rate = program.job.learning_rate;
      call.arenas = arenas;
      execute(call);
    }
  }

  void execute(const ComputeCall& call) {
    using Kind = InstructionKind;
    const Kind kind = call.instruction->kind;
    if (kind == Kind::kInitialize) device->initialize(call);
    if (kind == Kind::kLoadMicroBatch) device->load_micro_batch(call, ids.data(), labels.data());
    if (kind >= Kind::kForward && kind <= Kind::kBackwardWeight) device->unit_compute(call);
    if (kind == Kind::kAccumulate) device->accumulate(call);
    if (kind == Kind::kGradientNorm) device->gradient_norm(call);
    if (kind == Kind::kOptimizerStep) device->optimizer_step(call);
  }

  std::byte* state(BufferRole role, ParameterGroupId group = {}) const {
    for (const Buffer& b : rank_class().buffers) {
      if (b.role == role && b.parameter_group == group) return arenas[0] + b.offset;
    }
    return nullptr;
  }
  const double* scalars() const {
    return reinterpret_cast<const double*>(state(BufferRole::kScalars));
  }

  /// Calls body(name, shape, address) for every parameter's slot in the buffers of `role`.
  template <class Body>
  void for_each_parameter(BufferRole role, const Body& body) const {
    const std::int64_t size = dtype_size(state_dtype(program, role));
    for (std::size_t g = 0; g < program.parameter_groups.size(); ++g) {
      std::byte* start = state(role, ParameterGroupId(g));
      if (start == nullptr) continue;
      for (const GroupParameter& p : program.parameter_groups[g].parameters) {
        body(p.name, p.shape, start + p.offset * size);
      }
    }
  }

  /// Bytes of all parameters' slots in the buffers of `role`.
  std::vector<std::byte> bytes(BufferRole role) const {
    std::vector<std::byte> all;
    const std::int64_t size = dtype_size(state_dtype(program, role));
    for_each_parameter(role, [&](const std::string&, const Shape& shape, const std::byte* at) {
      all.insert(all.end(), at, at + shape.count() * size);
    });
    return all;
  }
};

/// Replaces every fused backward of the train step by backward_input and backward_weight, with a
/// stash and a workspace of their own at the end of the arena.
inline void split_backwards(Program& program) {
  RankClass& c = program.classes[0];
  InstructionList& list = c.programs[static_cast<std::size_t>(ProgramKind::kTrainStep)];
  const auto append = [&](Buffer b) {
    b.offset = c.arena_bytes[0];
    c.arena_bytes[0] += round_up(b.bytes, kTensorAlignment);
    c.buffers.push_back(b);
    return BufferId(c.buffers.size() - 1);
  };
  std::vector<Instruction> result;
  for (const Instruction& fused : list.instructions) {
    if (fused.kind != InstructionKind::kBackward) {
      result.push_back(fused);
      continue;
    }
    const UnitLayout& layout = program.layout_of(fused.unit);
    Buffer stash;
    stash.region = Region::kGradientStash;
    stash.role = BufferRole::kActivationGradient;
    stash.unit = fused.unit;
    stash.micro_batch = fused.micro_batch;
    stash.bytes = layout.split.stash_bytes;
    const BufferId stash_id = append(stash);
    for (const bool input : {true, false}) {
      if (input && !layout.has_backward_input) continue;
      Buffer workspace;
      workspace.role = BufferRole::kWorkspace;
      workspace.bytes =
          (input ? layout.split.scratch_bytes : 0) + layout.workspace_bytes[input ? 1 : 2];
      Instruction part = fused;
      part.kind = input ? InstructionKind::kBackwardInput : InstructionKind::kBackwardWeight;
      part.accesses.begin = static_cast<std::int32_t>(list.accesses.size());
      for (std::int32_t a = fused.accesses.begin; a < fused.accesses.end; ++a) {
        const Access access = list.accesses[static_cast<std::size_t>(a)];
        const BufferRole role = c.buffers[access.buffer.index()].role;
        if (role == BufferRole::kWorkspace) continue;
        if (role == BufferRole::kGradients && input) continue;
        list.accesses.push_back(access);
      }
      list.accesses.push_back({stash_id, 0, stash.bytes, AccessMode::kUpdate, false});
      list.accesses.push_back({append(workspace), 0, workspace.bytes, AccessMode::kWrite, false});
      part.accesses.end = static_cast<std::int32_t>(list.accesses.size());
      result.push_back(part);
    }
  }
  list.instructions = std::move(result);
}

inline Architecture tiny_gpt2(bool tied) { return test::tiny_architecture(2, tied); }

/// Llama shape with grouped heads whose dims do not fill hidden, and with a qkv bias.
inline Architecture tiny_llama(bool tied) {
  Architecture a;
  a.name = "tiny-llama", a.family = "llama";
  a.layers = 2, a.hidden = 48, a.heads = 6, a.kv_heads = 2, a.head_dim = 10, a.ffn = 88;
  a.vocab = 97, a.max_seq = 16, a.tied = tied;
  a.norm = Architecture::Norm::kRmsNorm;
  a.position = Architecture::Position::kRope;
  a.activation = Architecture::Activation::kSwiglu;
  a.attention_out_bias = a.mlp_bias = false;
  return a;
}

/// One rank, `micro_batches` of 2 samples of 16 tokens.
inline Program one_rank_program(const Architecture& architecture, DType compute, double dropout,
                                int micro_batches = 1, int threads = 1,
                                OptimizerKind optimizer = OptimizerKind::kAdamW) {
  const ModelGraph graph = build_model(architecture, dropout > 0.0);
  Plan plan;
  plan.model = architecture.name;
  plan.cluster = "test";
  plan.threads_per_rank = threads;
  plan.job.seq = 16;
  plan.job.micro_batch = 2;
  plan.job.global_batch = 2 * micro_batches;
  plan.job.precision = precision_of(compute);
  plan.job.dropout = dropout;
  plan.job.seed = 11;
  plan.job.optimizer = optimizer;
  plan.stages = even_stages(graph, 1, 0);
  plan.replicas = {{micro_batches}};
  return std::move(*lower(plan, graph, test::tiny_cluster(1)));
}

/// Seeded token ids below `vocab`.
inline std::vector<std::int32_t> tokens(std::int32_t vocab, std::uint32_t seed) {
  std::vector<std::int32_t> ids(32);
  for (std::int32_t& id : ids) {
    seed = seed * 1664525u + 1013904223u;
    id = static_cast<std::int32_t>((seed >> 8) % static_cast<std::uint32_t>(vocab));
  }
  return ids;
}

}  // namespace bayplan::exec
