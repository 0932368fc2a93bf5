// Program: how a plan runs. The only input of the simulator and of the executor, and lower() is
// its only producer. One instruction list per rank class and sub-program; peers resolve through
// stage_rank and the mesh, so a class never names a rank.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/core/ids.h"
#include "planner/core/mesh.h"
#include "planner/core/model_graph.h"
#include "planner/core/training_job.h"
#include "planner/program/instruction.h"
#include "planner/program/unit_layout.h"

namespace bayplan {

enum class Tier : std::uint8_t { kDevice, kHost, kNvme };
constexpr int kTierCount = 3;
std::string_view tier_name(Tier tier);

/// What a buffer is for; the first eight are the `terms` of the fit JSON.
enum class BufferRole : std::uint8_t {
  kParameters,
  kGradients,
  kMaster,
  kMoment1,
  kMoment2,
  kActivation,          // boundary tensors and externals
  kSaved,               // saved for backward
  kActivationGradient,  // boundary gradients and stashes
  kLogits,              // saved region of the head
  kWorkspace,
  kScalars,             // loss, norm partials, flags
  kGatheredParameters,  // a ZeRO-3 group made whole for some uses
  kUnitGradients,       // one micro-batch's gradient of a group, until it is reduced
  kRecomputed,          // saved for backward, but computed twice
};
constexpr int kBufferRoleCount = 14;
std::string_view buffer_role_name(BufferRole role);
/// Key of `terms` in JSON that the role counts towards.
std::string_view memory_term_name(BufferRole role);

struct Buffer {
  Tier tier = Tier::kDevice;
  BufferRole role = BufferRole::kActivation;
  Region region = Region::kNone;  // of unit buffers
  std::int32_t region_index = 0;
  UnitId unit;                       // of unit buffers
  std::int32_t micro_batch = -1;     // of per-micro-batch buffers
  ParameterGroupId parameter_group;  // of state buffers
  bool persistent = false;           // lives across programs (never released)
  std::int64_t bytes = 0;            // as used
  std::int64_t offset = -1;          // in the tier's arena; aligned to kTensorAlignment
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

/// Members of a group are the ranks that differ from this one on `axes` only. `stages`, when not
/// empty, keeps just the pipeline coordinates listed (tied embeddings: first and last).
struct CommunicationGroup {
  std::string name;  // "dp", "world", "embedding"
  AxisSet axes = 0;
  std::vector<std::int32_t> pp_coordinates;
  friend bool operator==(const CommunicationGroup&, const CommunicationGroup&) = default;
};

/// A parameter's place in its group's flat buffer, in elements.
struct GroupParameter {
  std::int32_t parameter = 0;  // position in UnitClass::parameters of the owner unit
  std::string name;            // model-wide, e.g. "blocks.3.attention.qkv.weight"
  Shape shape;
  std::int64_t offset = 0;
  ParameterSpec::Init init = ParameterSpec::Init::kNormal;
  double init_std = 0.0;
  std::uint32_t random_stream = 0;  // identifies the tensor to the counter-based generator
};

/// One flat buffer of parameters that are treated alike. Tied weights are a group of their own,
/// owned by the first unit that holds them; other units refer to it.
struct ParameterGroup {
  UnitId owner;
  bool trainable = true;
  DType dtype = DType::kFp32;
  bool weight_decay = true;
  bool tied = false;
  int zero = 0;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  AxisSet shard_axes = 0;       // axes that optimizer state is sharded over (ZeRO 1: dp)
  AxisSet replicated_axes = 0;  // axes over which gradients are reduced
  std::vector<GroupParameter> parameters;
  std::int64_t elements = 0;                 // including alignment gaps
  std::int64_t padded_elements = 0;          // multiple of the shard count · alignment
  std::int64_t shard_elements = 0;           // padded_elements / shard count
  std::int64_t parameter_elements = 0;       // held between uses: shard_elements if gathered
  std::int64_t gradient_elements = 0;        // held over the step
  Tier state_tier = Tier::kDevice;           // master weights and moments
  bool gathered = false;                     // ZeRO 3: parameters are whole only while used
  bool reduced_each_micro_batch = false;     // gradients, else once a step
  std::vector<std::int32_t> pp_coordinates;  // pipeline ranks that hold a copy, ascending
};

/// Which group and position a unit's parameter has.
struct ParameterRef {
  ParameterGroupId group;
  std::int32_t position = 0;  // in ParameterGroup::parameters
};

struct ProgramUnit {
  std::int32_t unit_class = 0;
  std::int32_t layout = 0;  // in Program::layouts
  std::int32_t stage = 0;
  std::string name;
  std::vector<BoundarySource> sources;
  std::vector<ParameterRef> parameters;  // aligned with UnitClass::parameters
  std::vector<ParameterGroupId> groups;  // groups the unit touches, owned or not
};

enum class ProgramKind : std::uint8_t { kLoad, kTrainStep, kEvalStep, kSave };
constexpr int kProgramKindCount = 4;
std::string_view program_kind_name(ProgramKind kind);

/// Ranks with equal stages, group shapes and hardware share one class.
struct RankClass {
  int pp = 0;                        // pipeline coordinate
  std::vector<std::int32_t> stages;  // held here, ascending
  std::vector<Buffer> buffers;
  std::array<InstructionList, kProgramKindCount> programs;
  std::array<std::int64_t, kTierCount> arena_bytes{};        // extent; = predicted peak per tier
  std::array<std::int64_t, kProgramKindCount> peak_bytes{};  // device extent per sub-program
  std::int64_t micro_batches = 0;
};

struct Program {
  std::string model;
  Mesh mesh;
  TrainingJob job;
  int threads_per_rank = 1;
  DType reduction_dtype = DType::kFp32;  // what gradients are rounded to on the wire
  ModelGraph graph;                      // classes and units as lowered
  std::vector<UnitLayout> layouts;       // per unit class and way of recomputing that is in use
  std::vector<ProgramUnit> units;
  std::vector<ParameterGroup> parameter_groups;
  std::vector<CommunicationGroup> communication_groups;
  std::vector<RankClass> classes;
  std::vector<std::int32_t> rank_class;  // per rank
  std::vector<std::int32_t> stage_rank;  // stage -> pipeline coordinate
  std::uint64_t fingerprint = 0;

  int world_size() const { return mesh.world_size(); }
  const UnitLayout& layout_of(UnitId u) const {
    return layouts[static_cast<std::size_t>(units[u.index()].layout)];
  }
  const RankClass& class_of(int rank) const {
    return classes[static_cast<std::size_t>(rank_class[static_cast<std::size_t>(rank)])];
  }
  const InstructionList& list(int rank, ProgramKind kind) const {
    return class_of(rank).programs[static_cast<std::size_t>(kind)];
  }
};

/// Members of `group` that contain `rank`, ascending.
std::vector<int> group_members(const Program& program, CommunicationGroupId group, int rank);
/// Position of `rank` in group_members.
int group_index(const Program& program, CommunicationGroupId group, int rank);
/// Rank that holds `stage` and shares `rank`'s other coordinates.
int peer_rank(const Program& program, int rank, std::int32_t stage);
/// Index of `rank` among the ranks over which `group`'s state is sharded; 0 when it is whole.
int shard_index(const Program& program, const ParameterGroup& group, int rank);

/// Bytes [begin, end) of the buffer that `access` touches when `rank` executes `instruction`.
struct ByteInterval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
ByteInterval touched_bytes(const Program& program, int rank, const Instruction& instruction,
                           const Access& access);

/// Whether a parameter group keeps a buffer of this role: all keep parameters, trainable ones also
/// gradients, master weights where the precision has them, and the moments of their optimizer.
bool keeps(const Program& program, const ParameterGroup& group, BufferRole role);

/// Element type of a buffer that collectives may sum or gather (parameters, gradients, optimizer
/// state, scalars). Unit buffers mix types and are moved as bytes.
DType state_dtype(const Program& program, BufferRole role);

/// The bytes that a matched instruction works on: the payload of a send or receive, all shards of
/// an all_gather or reduce_scatter, what an all_reduce sums.
struct CollectivePayload {
  BufferId buffer;
  ByteInterval bytes;
};
CollectivePayload collective_payload(const Program& program, int rank, const InstructionList& list,
                                     const Instruction& instruction);

/// The own shard of an all_gather that is not in place: what the instruction reads. `buffer` is
/// invalid when the shard already lies in the payload.
CollectivePayload gather_source(const Program& program, int rank, const InstructionList& list,
                                const Instruction& instruction);

/// Bytes that `rank` sends into a matched instruction, by the definitions of wire bytes:
/// sends: the payload · all_gather: own shard to the others · reduce_scatter: all other shards ·
/// all_reduce: reduce_scatter + all_gather, member i of n owning elements [e·i/n, e·(i+1)/n).
std::int64_t sent_bytes(const Program& program, int rank, const InstructionList& list,
                        const Instruction& instruction);

}  // namespace bayplan
