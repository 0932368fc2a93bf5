#include "planner/program/program.h"

#include <algorithm>

#include "planner/core/check.h"

namespace bayplan {
namespace {

/// Position of `at` among the coordinates that differ on `axes` only, in rank order.
int index_on(const Mesh& mesh, const MeshCoordinate& at, AxisSet axes) {
  int index = 0;
  for (int i = 0; i < kAxisCount; ++i) {
    const Axis axis = static_cast<Axis>(i);
    if ((axes & axis_bit(axis)) != 0) {
      index = index * mesh.degree(axis) + at.at[static_cast<std::size_t>(i)];
    }
  }
  return index;
}

bool keeps(const CommunicationGroup& group, int pp) {
  return group.pp_coordinates.empty() ||
         std::find(group.pp_coordinates.begin(), group.pp_coordinates.end(), pp) !=
             group.pp_coordinates.end();
}

const CommunicationGroup& group_of(const Program& program, CommunicationGroupId id) {
  BAYPLAN_CHECK(id.valid() && id.index() < program.communication_groups.size(),
                "communication group out of range");
  return program.communication_groups[id.index()];
}

}  // namespace

namespace {

/// An all_gather that only reads a buffer takes its own shard from there.
bool is_gather_source(const Instruction& instruction, const Access& access) {
  return instruction.kind == InstructionKind::kAllGather && access.mode == AccessMode::kRead;
}

}  // namespace

std::string_view tier_name(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kNvme:
      return "nvme";
  }
  return "?";
}

std::string_view buffer_role_name(BufferRole role) {
  switch (role) {
    case BufferRole::kParameters:
      return "parameters";
    case BufferRole::kGradients:
      return "gradients";
    case BufferRole::kMaster:
      return "master";
    case BufferRole::kMoment1:
      return "moment1";
    case BufferRole::kMoment2:
      return "moment2";
    case BufferRole::kActivation:
      return "activation";
    case BufferRole::kSaved:
      return "saved";
    case BufferRole::kActivationGradient:
      return "activation_gradient";
    case BufferRole::kLogits:
      return "logits";
    case BufferRole::kWorkspace:
      return "workspace";
    case BufferRole::kScalars:
      return "scalars";
    case BufferRole::kGatheredParameters:
      return "gathered_parameters";
    case BufferRole::kUnitGradients:
      return "unit_gradients";
    case BufferRole::kRecomputed:
      return "recomputed";
  }
  return "?";
}

std::string_view memory_term_name(BufferRole role) {
  switch (role) {
    case BufferRole::kParameters:
      return "parameters";
    case BufferRole::kGradients:
      return "gradients";
    case BufferRole::kMaster:
      return "master";
    case BufferRole::kMoment1:
    case BufferRole::kMoment2:
      return "moments";
    case BufferRole::kActivation:
    case BufferRole::kSaved:
    case BufferRole::kActivationGradient:
      return "activations";
    case BufferRole::kLogits:
      return "logits";
    case BufferRole::kWorkspace:
    case BufferRole::kScalars:
      return "workspace";
    case BufferRole::kGatheredParameters:
      return "gathered_parameters";
    case BufferRole::kUnitGradients:
      return "unit_gradients";
    case BufferRole::kRecomputed:
      return "recompute";
  }
  return "?";
}

std::string_view program_kind_name(ProgramKind kind) {
  switch (kind) {
    case ProgramKind::kLoad:
      return "load";
    case ProgramKind::kTrainStep:
      return "train_step";
    case ProgramKind::kEvalStep:
      return "eval_step";
    case ProgramKind::kSave:
      return "save";
  }
  return "?";
}

std::vector<int> group_members(const Program& program, CommunicationGroupId group, int rank) {
  const CommunicationGroup& g = group_of(program, group);
  const Mesh& mesh = program.mesh;
  const MeshCoordinate self = mesh.coordinate(rank);
  std::array<int, kAxisCount> first{};
  std::array<int, kAxisCount> last{};
  for (std::size_t i = 0; i < kAxisCount; ++i) {
    const Axis axis = static_cast<Axis>(i);
    const bool varies = (g.axes & axis_bit(axis)) != 0;
    first[i] = varies ? 0 : self.at[i];
    last[i] = varies ? mesh.degree(axis) : self.at[i] + 1;
  }
  std::vector<int> members;
  for (int pp = first[0]; pp < last[0]; ++pp) {
    if (!keeps(g, pp)) continue;
    for (int dp = first[1]; dp < last[1]; ++dp) {
      for (int cp = first[2]; cp < last[2]; ++cp) {
        for (int tp = first[3]; tp < last[3]; ++tp) {
          members.push_back(mesh.rank_of(MeshCoordinate{{pp, dp, cp, tp}}));
        }
      }
    }
  }
  return members;
}

int group_index(const Program& program, CommunicationGroupId group, int rank) {
  const CommunicationGroup& g = group_of(program, group);
  const MeshCoordinate self = program.mesh.coordinate(rank);
  if (!keeps(g, self.pp())) return -1;
  if (g.pp_coordinates.empty()) return index_on(program.mesh, self, g.axes);
  const std::vector<int> members = group_members(program, group, rank);
  const auto it = std::find(members.begin(), members.end(), rank);
  return it == members.end() ? -1 : static_cast<int>(it - members.begin());
}

int peer_rank(const Program& program, int rank, std::int32_t stage) {
  BAYPLAN_CHECK(stage >= 0 && static_cast<std::size_t>(stage) < program.stage_rank.size(),
                "peer stage out of range");
  MeshCoordinate c = program.mesh.coordinate(rank);
  c.at[0] = program.stage_rank[static_cast<std::size_t>(stage)];
  return program.mesh.rank_of(c);
}

int shard_index(const Program& program, const ParameterGroup& group, int rank) {
  return index_on(program.mesh, program.mesh.coordinate(rank), group.shard_axes);
}

ByteInterval touched_bytes(const Program& program, int rank, const Instruction& instruction,
                           const Access& access) {
  std::int64_t begin = access.offset;
  if (access.sharded) {
    // An all_reduce works on the same bytes on all members, so its slice is the buffer's own.
    const bool by_group =
        instruction.group.valid() && instruction.kind != InstructionKind::kAllReduce;
    int index = 0;
    if (by_group) {
      index = group_index(program, instruction.group, rank);
      BAYPLAN_CHECK(index >= 0, "rank is not a member of its instruction's group");
    } else {
      const std::vector<Buffer>& buffers = program.class_of(rank).buffers;
      BAYPLAN_CHECK(access.buffer.valid() && access.buffer.index() < buffers.size(),
                    "buffer out of range");
      const ParameterGroupId group = buffers[access.buffer.index()].parameter_group;
      BAYPLAN_CHECK(group.valid() && group.index() < program.parameter_groups.size(),
                    "sharded access to a buffer without parameter group");
      index = shard_index(program, program.parameter_groups[group.index()], rank);
    }
    begin += index * access.bytes;
  }
  return {begin, begin + access.bytes};
}

bool keeps(const Program& program, const ParameterGroup& group, BufferRole role) {
  switch (role) {
    case BufferRole::kParameters:
      return true;
    case BufferRole::kGradients:
      return group.trainable;
    case BufferRole::kMaster:
      return group.trainable && program.job.precision.has_master;
    case BufferRole::kMoment1:
      return group.trainable && optimizer_spec(group.optimizer).moment1;
    case BufferRole::kMoment2:
      return group.trainable && optimizer_spec(group.optimizer).moment2;
    case BufferRole::kActivation:
    case BufferRole::kSaved:
    case BufferRole::kActivationGradient:
    case BufferRole::kLogits:
    case BufferRole::kWorkspace:
    case BufferRole::kGatheredParameters:
    case BufferRole::kUnitGradients:
    case BufferRole::kRecomputed:
    case BufferRole::kScalars:
      break;
  }
  return false;
}

DType state_dtype(const Program& program, BufferRole role) {
  const Precision& precision = program.job.precision;
  switch (role) {
    case BufferRole::kParameters:
    case BufferRole::kGatheredParameters:
      return precision.compute;
    case BufferRole::kGradients:
    case BufferRole::kUnitGradients:
      return precision.gradient;
    case BufferRole::kMaster:
    case BufferRole::kMoment1:
    case BufferRole::kMoment2:
      return precision.state;
    case BufferRole::kScalars:
      return DType::kFp64;
    case BufferRole::kActivation:
    case BufferRole::kSaved:
    case BufferRole::kActivationGradient:
    case BufferRole::kLogits:
    case BufferRole::kWorkspace:
    case BufferRole::kRecomputed:
      break;
  }
  BAYPLAN_CHECK(false, "buffer role has no single element type");
}

CollectivePayload collective_payload(const Program& program, int rank, const InstructionList& list,
                                     const Instruction& instruction) {
  BAYPLAN_CHECK(instruction.accesses.size() > 0, "matched instruction without accesses");
  const auto n = static_cast<std::int64_t>(
      instruction.group.valid() ? group_members(program, instruction.group, rank).size() : 1);
  const bool shards_by_group =
      instruction.group.valid() && instruction.kind != InstructionKind::kAllReduce;
  CollectivePayload payload;
  for (std::int32_t i = instruction.accesses.begin; i < instruction.accesses.end; ++i) {
    const Access& access = list.accesses[static_cast<std::size_t>(i)];
    if (is_gather_source(instruction, access)) continue;
    const ByteInterval bytes = access.sharded && shards_by_group
                                   ? ByteInterval{access.offset, access.offset + n * access.bytes}
                                   : touched_bytes(program, rank, instruction, access);
    if (!payload.buffer.valid()) {
      payload.buffer = access.buffer;
      payload.bytes = bytes;
    }
    BAYPLAN_CHECK(payload.buffer == access.buffer, "matched instruction with several buffers");
    payload.bytes.begin = std::min(payload.bytes.begin, bytes.begin);
    payload.bytes.end = std::max(payload.bytes.end, bytes.end);
  }
  BAYPLAN_CHECK(payload.buffer.valid(), "matched instruction without a payload");
  return payload;
}

CollectivePayload gather_source(const Program& program, int rank, const InstructionList& list,
                                const Instruction& instruction) {
  for (std::int32_t i = instruction.accesses.begin; i < instruction.accesses.end; ++i) {
    const Access& access = list.accesses[static_cast<std::size_t>(i)];
    if (is_gather_source(instruction, access))
      return {access.buffer, touched_bytes(program, rank, instruction, access)};
  }
  return {};
}

std::int64_t sent_bytes(const Program& program, int rank, const InstructionList& list,
                        const Instruction& instruction) {
  if (!is_matched(instruction.kind) || is_recv(instruction.kind)) return 0;
  const ByteInterval payload = collective_payload(program, rank, list, instruction).bytes;
  const std::int64_t bytes = payload.end - payload.begin;
  if (is_send(instruction.kind)) return bytes;
  const auto n = static_cast<std::int64_t>(group_members(program, instruction.group, rank).size());
  const std::int64_t i = group_index(program, instruction.group, rank);
  if (instruction.kind == InstructionKind::kBroadcast) return i == 0 ? bytes * (n - 1) : 0;
  if (instruction.kind != InstructionKind::kAllReduce) {
    const std::int64_t shard = bytes / n;
    return instruction.kind == InstructionKind::kReduceScatter ? bytes - shard : shard * (n - 1);
  }
  const Buffer& buffer =
      program.class_of(rank).buffers
          [list.accesses[static_cast<std::size_t>(instruction.accesses.begin)].buffer.index()];
  const std::int64_t size = dtype_size(state_dtype(program, buffer.role));
  const std::int64_t elements = bytes / size;
  const std::int64_t own = (elements * (i + 1) / n - elements * i / n) * size;
  return bytes - own + own * (n - 1);
}

}  // namespace bayplan
