// Lifetimes and hazards: what is read was written, nothing is used after its release, and two uses
// of the same bytes, one of them a write, are ordered. Uses are walked in issue order; where all
// conflicting uses are ordered, issue order is the order in which they happen, so "written before"
// below means on every execution.
#include <algorithm>
#include <map>

#include "planner/program/verify_internal.h"

namespace bayplan::verification {
namespace {

/// Disjoint intervals, ascending.
class Intervals {
 public:
  bool contains(ByteInterval b) const {
    if (b.begin >= b.end) return true;
    for (const ByteInterval& i : parts_) {
      if (i.begin <= b.begin && b.end <= i.end) return true;
    }
    return false;
  }
  void add(ByteInterval b) {
    if (b.begin >= b.end) return;
    std::vector<ByteInterval> kept;
    for (const ByteInterval& i : parts_) {
      if (i.end < b.begin || b.end < i.begin) {
        kept.push_back(i);
      } else {
        b = {std::min(b.begin, i.begin), std::max(b.end, i.end)};
      }
    }
    kept.push_back(b);
    std::sort(kept.begin(), kept.end(),
              [](const ByteInterval& x, const ByteInterval& y) { return x.begin < y.begin; });
    parts_ = std::move(kept);
  }
  void remove(ByteInterval b) {
    std::vector<ByteInterval> kept;
    for (const ByteInterval& i : parts_) {
      if (i.begin < std::min(i.end, b.begin)) kept.push_back({i.begin, std::min(i.end, b.begin)});
      if (std::max(i.begin, b.end) < i.end) kept.push_back({std::max(i.begin, b.end), i.end});
    }
    parts_ = std::move(kept);
  }

 private:
  std::vector<ByteInterval> parts_;
};

/// A use that a later one may still conflict with.
struct OpenUse {
  std::int32_t instruction = 0;
  ByteInterval bytes;
  bool writes = false;
};

struct BufferState {
  Intervals written;
  std::vector<OpenUse> open;
  std::int32_t release = -1;
  bool used = false;
};

bool overlap(ByteInterval a, ByteInterval b) {
  return std::max(a.begin, b.begin) < std::min(a.end, b.end);
}
bool covers(ByteInterval outer, ByteInterval inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

/// Whether the buffer's contents survive from one sub-program to the next. Everything else has to
/// be written again before it is read.
bool is_state(BufferRole role) {
  return role == BufferRole::kParameters || role == BufferRole::kMaster ||
         role == BufferRole::kMoment1 || role == BufferRole::kMoment2;
}

class HazardCheck {
 public:
  HazardCheck(const ClassProgram& p, int rank, const HappensBefore& order, Findings& findings)
      : p_(p),
        rank_(rank),
        order_(order),
        findings_(findings),
        states_(p.rank_class.buffers.size()) {
    if (p.kind == ProgramKind::kLoad) return;
    for (std::size_t b = 0; b < states_.size(); ++b) {
      const Buffer& buffer = p.rank_class.buffers[b];
      if (is_state(buffer.role)) states_[b].written.add({0, buffer.bytes});
    }
  }

  void check() {
    for (std::int32_t i = 0; i < p_.size() && !findings_.full(); ++i) {
      const Instruction& instruction = p_.at(i);
      if (instruction.kind == InstructionKind::kRelease) {
        for (std::int32_t a = instruction.accesses.begin; a < instruction.accesses.end; ++a) {
          release(i, p_.access(a).buffer);
        }
        continue;
      }
      // All reads of an instruction come before all its writes.
      for (const bool writes : {false, true}) {
        for (std::int32_t a = instruction.accesses.begin; a < instruction.accesses.end; ++a) {
          use(i, instruction, p_.access(a), writes);
        }
      }
    }
    for (std::size_t b = 0; b < states_.size(); ++b) {
      if (states_[b].used && states_[b].release < 0 && !p_.rank_class.buffers[b].persistent) {
        report(Violation::kLeak, -1, name(BufferId(b)) + " is used and never released");
      }
    }
  }

 private:
  std::string name(BufferId b) const { return describe(p_.rank_class, b); }
  std::string name(std::int32_t i) const { return describe(p_.list, i); }
  void report(Violation v, std::int32_t i, std::string message) {
    findings_.add(v, p_.kind, rank_, InstructionId(i), std::move(message));
  }

  void use(std::int32_t i, const Instruction& instruction, const Access& access, bool writing) {
    const bool reads = access.mode != AccessMode::kWrite;
    const bool writes = access.mode != AccessMode::kRead;
    if (writing ? !writes : !reads) return;
    BufferState& state = states_[access.buffer.index()];
    state.used = true;
    const ByteInterval bytes = touched_bytes(p_.program, rank_, instruction, access);
    if (state.release >= 0) {
      if (writing && reads) return;  // reported as a read
      return report(Violation::kUseAfterRelease, i,
                    name(i) + " uses " + name(access.buffer) + " behind its release by " +
                        name(state.release));
    }
    if (!writing) {
      // An all_gather in place contributes its own slice and replaces the others.
      const ByteInterval read = instruction.kind == InstructionKind::kAllGather && writes
                                    ? own_slice(instruction, bytes)
                                    : bytes;
      if (!state.written.contains(read)) {
        report(Violation::kUseBeforeWrite, i,
               name(i) + " reads " + describe(read) + " of " + name(access.buffer) +
                   ", which nothing wrote before");
      }
    }
    if (!writing || !reads) order_against_open(i, access.buffer, bytes, writes, state);
    if (!writing) return;
    state.written.add(bytes);
    if (instruction.kind == InstructionKind::kReduceScatter) {
      // The sum is in the own slice; the others hold nothing that may be read.
      state.written.remove(bytes);
      state.written.add(own_slice(instruction, bytes));
    }
  }

  ByteInterval own_slice(const Instruction& instruction, ByteInterval all) const {
    const auto n =
        static_cast<std::int64_t>(group_members(p_.program, instruction.group, rank_).size());
    const std::int64_t slice = (all.end - all.begin) / n;
    const std::int64_t begin =
        all.begin + slice * group_index(p_.program, instruction.group, rank_);
    return {begin, begin + slice};
  }

  void order_against_open(std::int32_t i, BufferId buffer, ByteInterval bytes, bool writes,
                          BufferState& state) {
    std::size_t kept = 0;
    for (const OpenUse& other : state.open) {
      bool open = true;
      if (other.instruction != i) {
        const bool ordered = order_.before(other.instruction, i);
        if (!ordered && (writes || other.writes) && overlap(bytes, other.bytes)) {
          report(Violation::kRace, i,
                 name(i) + (writes ? " writes " : " reads ") + name(buffer) + " and " +
                     name(other.instruction) + (other.writes ? " writes" : " reads") +
                     " the same bytes: neither waits for the other");
        }
        // Whatever conflicts with `other` later conflicts with this use too, and order is
        // transitive.
        open = !(ordered && covers(bytes, other.bytes) && (writes || !other.writes));
      }
      if (open) state.open[kept++] = other;
    }
    state.open.resize(kept);
    state.open.push_back({i, bytes, writes});
  }

  void release(std::int32_t i, BufferId buffer) {
    BufferState& state = states_[buffer.index()];
    if (p_.buffer(buffer).persistent) {
      report(Violation::kUseAfterRelease, i,
             name(i) + " releases " + name(buffer) + ", which the next step uses again");
    } else if (state.release >= 0) {
      report(Violation::kUseAfterRelease, i,
             name(i) + " releases " + name(buffer) + ", which " + name(state.release) +
                 " released before");
    } else if (!state.used) {
      report(Violation::kUseAfterRelease, i,
             name(i) + " releases " + name(buffer) + " before anything wrote it");
    }
    for (const OpenUse& other : state.open) {
      if (!order_.before(other.instruction, i)) {
        report(Violation::kUseAfterRelease, i,
               name(i) + " releases " + name(buffer) + " without waiting for " +
                   name(other.instruction));
      }
    }
    state.release = i;
  }

  const ClassProgram& p_;
  int rank_;
  const HappensBefore& order_;
  Findings& findings_;
  std::vector<BufferState> states_;
};

}  // namespace

void check_hazards(const ClassProgram& p, int rank, const HappensBefore& order,
                   Findings& findings) {
  HazardCheck(p, rank, order, findings).check();
}

std::vector<int> hazard_ranks(const Program& program, std::int32_t index, ProgramKind kind) {
  const RankClass& rank_class = program.classes[static_cast<std::size_t>(index)];
  const InstructionList& list = rank_class.programs[static_cast<std::size_t>(kind)];
  // Where slices come from: the instruction's group, or else the buffer's parameter group.
  struct Source {
    CommunicationGroupId group;
    ParameterGroupId parameters;
  };
  std::map<std::pair<std::int32_t, std::int32_t>, Source> sources;
  std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> slicing;  // buffer -> offset, bytes
  bool uniform = true;  // one slicing per buffer, and what is not sliced touches all slices
  for (const bool sharded : {true, false}) {
    for (const Instruction& i : list.instructions) {
      for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
        const Access& access = list.accesses[static_cast<std::size_t>(a)];
        if (access.sharded != sharded) continue;
        const Buffer& buffer = rank_class.buffers[access.buffer.index()];
        if (!sharded) {
          uniform = uniform && (slicing.count(access.buffer.value) == 0 ||
                                (access.offset == 0 && access.bytes == buffer.bytes));
          continue;
        }
        const bool by_group = i.group.valid() && i.kind != InstructionKind::kAllReduce;
        const Source source = by_group ? Source{i.group, {}} : Source{{}, buffer.parameter_group};
        sources.insert({{source.group.value, source.parameters.value}, source});
        const auto [it, inserted] =
            slicing.insert({access.buffer.value, {access.offset, access.bytes}});
        uniform = uniform && it->second == std::pair(access.offset, access.bytes);
      }
    }
  }
  std::map<std::vector<int>, int> patterns;
  for (int rank = 0; rank < program.world_size(); ++rank) {
    if (program.rank_class[static_cast<std::size_t>(rank)] != index) continue;
    std::vector<int> slices;
    for (const auto& [key, source] : sources) {
      slices.push_back(
          source.group.valid()
              ? group_index(program, source.group, rank)
              : shard_index(program, program.parameter_groups[source.parameters.index()], rank));
    }
    // When every slice has the same index, the rank's slices overlap exactly as any other's do.
    const bool equal =
        std::adjacent_find(slices.begin(), slices.end(), std::not_equal_to<>()) == slices.end();
    if (uniform && equal) slices.clear();
    patterns.insert({slices, rank});
  }
  std::vector<int> ranks;
  for (const auto& [slices, rank] : patterns) ranks.push_back(rank);
  return ranks;
}

}  // namespace bayplan::verification
