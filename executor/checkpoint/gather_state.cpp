#include "executor/checkpoint/gather_state.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

constexpr int kStateTag = 1 << 20;  // apart from all tags of programs
constexpr std::array<BufferRole, 4> kStateRoles = {BufferRole::kMaster, BufferRole::kMoment1,
                                                   BufferRole::kMoment2, BufferRole::kParameters};

std::string prefix_of(BufferRole role) {
  if (role == BufferRole::kMaster) return "master/";
  if (role == BufferRole::kMoment1) return "moment1/";
  if (role == BufferRole::kMoment2) return "moment2/";
  BAYPLAN_CHECK(role == BufferRole::kParameters, "not a state buffer");
  return "weights/";
}

/// Bytes [begin, end) of a group's flat state, held by `rank` at `arena_offset`.
struct Piece {
  int rank = 0;
  Tier tier = Tier::kDevice;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t arena_offset = 0;
};

using StateKey = std::pair<std::int32_t, BufferRole>;  // parameter group, role
using Pieces = std::map<StateKey, std::vector<Piece>>;

/// What the save programs of all ranks contribute, without bytes that two ranks offer.
Pieces find_pieces(const Program& program) {
  Pieces pieces;
  for (int rank = 0; rank < program.world_size(); ++rank) {
    const RankClass& rank_class = program.class_of(rank);
    const InstructionList& list = program.list(rank, ProgramKind::kSave);
    for (const Instruction& i : list.instructions) {
      if (i.kind != InstructionKind::kOffload || i.purpose != Purpose::kCheckpoint) continue;
      for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
        const Access& access = list.accesses[static_cast<std::size_t>(a)];
        const Buffer& buffer = rank_class.buffers[access.buffer.index()];
        const ParameterGroup& group = program.parameter_groups[buffer.parameter_group.index()];
        const ByteInterval held = touched_bytes(program, rank, i, access);
        // A buffer that is a shard of the flat state starts in its middle.
        const std::int64_t size = dtype_size(state_dtype(program, buffer.role));
        const bool is_shard = buffer.bytes < group.padded_elements * size;
        const std::int64_t shift =
            is_shard ? shard_index(program, group, rank) * group.shard_elements * size : 0;
        pieces[{buffer.parameter_group.value, buffer.role}].push_back(
            {rank, buffer.tier, held.begin + shift, held.end + shift, buffer.offset + held.begin});
      }
    }
  }
  for (auto& [key, list] : pieces) {
    std::stable_sort(list.begin(), list.end(),
                     [](const Piece& x, const Piece& y) { return x.begin < y.begin; });
    std::int64_t reached = 0;
    std::vector<Piece> kept;
    for (Piece p : list) {
      if (p.end <= reached) continue;
      if (p.begin < reached) {
        p.arena_offset += reached - p.begin;
        p.begin = reached;
      }
      reached = p.end;
      kept.push_back(p);
    }
    list = std::move(kept);
  }
  return pieces;
}

/// A tensor and where it lies in its group's flat state.
struct Located {
  LogicalTensor tensor;
  StateKey key;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

std::vector<Located> locate_tensors(const Program& program) {
  std::vector<Located> all;
  for (std::size_t g = 0; g < program.parameter_groups.size(); ++g) {
    const ParameterGroup& group = program.parameter_groups[g];
    for (const BufferRole role : kStateRoles) {
      if (!keeps(program, group, role)) continue;
      const DType dtype =
          role == BufferRole::kParameters ? group.dtype : state_dtype(program, role);
      const std::int64_t size = dtype_size(dtype);
      for (const GroupParameter& p : group.parameters) {
        Located located;
        located.tensor = {prefix_of(role) + p.name, dtype, p.shape, {}};
        located.key = {static_cast<std::int32_t>(g), role};
        located.begin = p.offset * size;
        located.end = located.begin + p.shape.count() * size;
        all.push_back(std::move(located));
      }
    }
  }
  Located step;
  step.tensor = {"step", DType::kInt64, Shape{}, {}};
  step.key = {-1, BufferRole::kScalars};
  all.push_back(std::move(step));
  std::sort(all.begin(), all.end(),
            [](const Located& x, const Located& y) { return x.tensor.name < y.tensor.name; });
  return all;
}

}  // namespace

std::vector<LogicalTensor> state_tensors(const Program& program) {
  std::vector<LogicalTensor> out;
  for (Located& located : locate_tensors(program)) out.push_back(std::move(located.tensor));
  return out;
}

void gather_state(const Program& program, const std::array<std::byte*, kTierCount>& arenas,
                  Communicator& communicator, std::int64_t step, const StateVisitor& visit) {
  const Pieces pieces = find_pieces(program);
  const int self = communicator.rank();
  std::vector<std::byte> whole;
  std::vector<Message> messages;
  for (Located& located : locate_tensors(program)) {
    if (located.key.first < 0) {
      if (self != 0) continue;
      located.tensor.bytes = std::as_bytes(std::span(&step, 1));
      visit(located.tensor);
      continue;
    }
    if (self == 0) whole.resize(static_cast<std::size_t>(located.end - located.begin));
    messages.clear();
    std::int64_t reached = located.begin;
    const auto found = pieces.find(located.key);
    BAYPLAN_CHECK(found != pieces.end(), "no rank saves " + located.tensor.name);
    for (const Piece& piece : found->second) {
      const std::int64_t begin = std::max(piece.begin, located.begin);
      const std::int64_t end = std::min(piece.end, located.end);
      if (begin >= end) continue;
      BAYPLAN_CHECK(begin == reached, "a part of " + located.tensor.name + " is not saved");
      reached = end;
      std::byte* const source = piece.rank == self ? arenas[static_cast<std::size_t>(piece.tier)] +
                                                         piece.arena_offset + (begin - piece.begin)
                                                   : nullptr;
      std::byte* const target = self == 0 ? whole.data() + (begin - located.begin) : nullptr;
      if (self == 0 && piece.rank == 0) {
        std::memcpy(target, source, static_cast<std::size_t>(end - begin));
      } else if (self == 0) {
        messages.push_back({false, piece.rank, kStateTag, target, end - begin,
                            InstructionKind::kOffload, Purpose::kCheckpoint});
      } else if (piece.rank == self) {
        messages.push_back({true, 0, kStateTag, source, end - begin, InstructionKind::kOffload,
                            Purpose::kCheckpoint});
      }
    }
    BAYPLAN_CHECK(reached == located.end, "the end of " + located.tensor.name + " is not saved");
    if (!messages.empty()) {
      const std::string what = "gather of " + located.tensor.name;
      communicator.exchange({step, what, Purpose::kCheckpoint}, messages);
    }
    if (self == 0) {
      located.tensor.bytes = whole;
      visit(located.tensor);
    }
  }
}

}  // namespace bayplan::exec
