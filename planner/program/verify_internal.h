// What the parts of verify() share. One file proves one kind of property; verify.cpp lists them.
// Not for anyone outside planner/program.
//
// What is proven, and on how few objects:
// · Issue order, streams and waits are the same for all ranks of a class, so happens-before and
//   everything derived from it is judged once per class. Only slices of sharded accesses depend
//   on the rank: byte hazards are judged for one rank of every pattern of slices (hazard_ranks).
// · When a rank's class depends on its pipeline coordinate only, moving all ranks along dp, cp or
//   tp maps the program onto itself: messages keep the other coordinates and groups are sets of
//   axes. The set of instructions that can complete is unique (verify_progress.cpp), hence
//   symmetric too, so it suffices to play one rank per pipeline coordinate, in which the members
//   of a group that share a coordinate are one member (Folding). Otherwise all ranks are played.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/program/program.h"
#include "planner/program/verify.h"

namespace bayplan::verification {

/// Collects findings up to the caller's limit.
class Findings {
 public:
  explicit Findings(std::size_t limit) : limit_(limit) {}
  bool full() const { return found_.size() >= limit_; }
  bool empty() const { return found_.empty(); }
  void add(Violation violation, ProgramKind kind, int rank, InstructionId instruction,
           std::string message) {
    if (!full()) found_.push_back({violation, kind, rank, instruction, std::move(message)});
  }
  std::vector<VerifyFinding> take() { return std::move(found_); }

 private:
  std::size_t limit_;
  std::vector<VerifyFinding> found_;
};

/// One sub-program of one class; `rank` is the class's first rank and stands for it in findings.
struct ClassProgram {
  const Program& program;
  const RankClass& rank_class;
  const InstructionList& list;
  ProgramKind kind;
  int rank;

  const Instruction& at(std::int32_t i) const {
    return list.instructions[static_cast<std::size_t>(i)];
  }
  std::int32_t size() const { return static_cast<std::int32_t>(list.instructions.size()); }
  const Access& access(std::int32_t a) const { return list.accesses[static_cast<std::size_t>(a)]; }
  const Buffer& buffer(BufferId b) const { return rank_class.buffers[b.index()]; }
};

/// "i12 F unit 3 mb 0" and "b5 (saved_for_input of unit 3, micro-batch 0)", for messages.
std::string describe(const InstructionList& list, std::int32_t instruction);
std::string describe(const RankClass& rank_class, BufferId buffer);
std::string describe(ByteInterval bytes);
/// "saved_for_input of unit 3, micro-batch 0".
std::string describe_contents(const Buffer& buffer);

/// What starts and completes as one: an instruction, or neighbours on a stream with one fuse id.
/// A step starts when the step before it on its stream is complete and all waits of all its
/// members are done; its members then run with no order among them; it is complete when all are.
struct Steps {
  struct Step {
    std::int32_t lane = 0;
    std::int32_t position = 0;  // in its lane, from 1
    std::int32_t before = -1;   // step before it in its lane
  };
  std::vector<Step> steps;            // by first member
  std::vector<std::int32_t> step_of;  // per instruction
};
/// With one_queue, the communication streams are one lane. Consumers also find a step's members by
/// their neighbourhood in the list; check_groups makes that the same.
Steps make_steps(const InstructionList& list, bool one_queue);

constexpr bool communicates(Stream s) {
  return s == Stream::kP2p || s == Stream::kReduce || s == Stream::kGather;
}

/// The partial order that streams and waits guarantee within one rank. What other ranks do could
/// order more; a program must not depend on it.
class HappensBefore {
 public:
  explicit HappensBefore(const InstructionList& list);
  /// Whether `first` is complete before `second` starts.
  bool before(std::int32_t first, std::int32_t second) const {
    const auto a = static_cast<std::size_t>(steps_.step_of[static_cast<std::size_t>(first)]);
    const auto b = static_cast<std::size_t>(steps_.step_of[static_cast<std::size_t>(second)]);
    const auto lane = static_cast<std::size_t>(steps_.steps[a].lane);
    return a != b && clocks_[b][lane] >= steps_.steps[a].position;
  }

 private:
  Steps steps_;
  /// Per step and lane: position of the latest step known to be complete before it starts.
  std::vector<std::array<std::int32_t, kStreamCount>> clocks_;
};

/// Ranks that are played, and the player that stands for each rank.
struct Folding {
  std::vector<int> players;             // ranks, ascending
  std::vector<std::int32_t> player_of;  // per rank: position in players
};

/// Instructions of different players that complete together.
struct Matching {
  struct Side {
    std::int32_t player = 0;
    std::int32_t instruction = 0;
  };
  std::vector<std::vector<Side>> matches;
  std::vector<std::vector<std::int32_t>> match_of;  // [player][instruction], -1 = none
  bool complete = true;                             // every matched instruction has its partners
};

// The proofs. Each adds what it finds; all but check_form rely on check_form having found nothing.

/// Indices, ranges, sizes and enumerators; nothing may be read out of bounds later.
void check_form(const Program& program, Findings& findings);
/// Who meets whom, and whether they agree.
Matching check_matching(const Program& program, ProgramKind kind, const Folding& folding,
                        Findings& findings);
/// Neighbours on a stream with one fuse id are neighbours in the list.
void check_groups(const ClassProgram& p, Findings& findings);
/// Absence of deadlock, with streams of their own and with one communication queue.
void check_progress(const Program& program, ProgramKind kind, const Folding& folding,
                    const Matching& matching, Findings& findings);
/// Lifetimes and hazards of bytes as `rank` touches them.
void check_hazards(const ClassProgram& p, int rank, const HappensBefore& order, Findings& findings);
/// Buffers that share arena bytes.
void check_sharing(const ClassProgram& p, const HappensBefore& order, Findings& findings);
/// Every instruction touches what its kind is defined to touch, whole.
void check_accesses(const ClassProgram& p, Findings& findings);
/// Every buffer has the size of what it holds.
void check_buffer_sizes(const Program& program, const RankClass& rank_class, int rank,
                        Findings& findings);
/// Gradients and losses are added once per micro-batch, in ascending order.
void check_accumulation(const ClassProgram& p, Findings& findings);
/// Everything that the job needs is there once, and data flows through it in the right order.
void check_completeness(const ClassProgram& p, const HappensBefore& order, Findings& findings);
/// The replicas' micro-batches make up the global batch, on every pipeline coordinate.
void check_batch(const Program& program, Findings& findings);
/// Arena extents against declared peaks and capacities.
void check_budget(const RankClass& rank_class, int rank, const VerifyOptions& options,
                  Findings& findings);

/// Ranks of class `index` that stand for all its ranks as far as byte hazards go.
std::vector<int> hazard_ranks(const Program& program, std::int32_t index, ProgramKind kind);

/// How many slices a sharded access of `i` to `buffer` divides it into; 0 when that is undefined.
std::int64_t slice_count(const Program& program, const Instruction& i, const Buffer& buffer);

/// Axes of `axes` whose degree is above 1: what makes two groups have the same members.
AxisSet effective_axes(const Mesh& mesh, AxisSet axes);
/// Product of the degrees of `axes`.
std::int64_t degree(const Mesh& mesh, AxisSet axes);

}  // namespace bayplan::verification
