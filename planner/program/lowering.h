// Internal state of lower(): what the passes share. Each pass is one free function in its own
// pass_*.cpp; lower.cpp lists them in order. Not for anyone outside planner/program.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "planner/core/cluster.h"
#include "planner/core/model_graph.h"
#include "planner/core/plan.h"
#include "planner/program/program.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/timing.h"

namespace bayplan {

/// One instruction list under construction. `list.accesses` may hold entries in any order until
/// pass_memory writes the final list.
struct Draft {
  InstructionList list;
  int next_fuse = 0;

  Instruction& add(Instruction instruction, std::initializer_list<Access> accesses) {
    return add(instruction, std::span<const Access>(accesses.begin(), accesses.size()));
  }
  Instruction& add(Instruction instruction, std::span<const Access> accesses) {
    instruction.accesses.begin = static_cast<std::int32_t>(list.accesses.size());
    list.accesses.insert(list.accesses.end(), accesses.begin(), accesses.end());
    instruction.accesses.end = static_cast<std::int32_t>(list.accesses.size());
    list.instructions.push_back(instruction);
    return list.instructions.back();
  }
};

/// One tensor that crosses from the rank of one stage to that of another.
struct StageMessage {
  std::int64_t time = 0;  // end of the op that produces it, on ideal ranks
  bool gradient = false;
  UnitId unit;  // whose output, or whose output's gradient
  std::int32_t from_stage = 0;
  std::int32_t to_stage = 0;
  std::int32_t micro_batch = 0;
};

/// What one pipeline rank computes in a sub-program, and what it sends and receives, by time.
struct RankOrder {
  std::vector<ScheduleOp> ops;
  std::vector<OpTime> times;  // aligned with ops
  std::vector<StageMessage> messages;
};

/// Identity of a per-micro-batch buffer. Dense table: [micro_batch][unit][kind].
enum class UnitBuffer : std::uint8_t {
  kOutput,
  kOutputGradient,
  kSavedForInput,
  kSavedForWeight,
  kStash,
  kTokens,
  kLabels,
  kForwardForInput,  // written by forward and released: recompute writes the next two
  kForwardForWeight,
  kRecomputedForInput,
  kRecomputedForWeight,
  kHostForInput,  // offloaded between forward and backward
  kHostForWeight,
  kReloadedForInput,
  kReloadedForWeight,
};
constexpr std::size_t kUnitBufferCount = 15;

/// A rank class under construction.
struct ClassDraft {
  RankClass result;
  RankOrder train, eval;
  std::vector<UnitId> units;             // held, model order
  std::vector<ParameterGroupId> groups;  // held, ascending
  BufferId workspace;
  BufferId scalars;
  std::vector<BufferId> parameters, gradients, master, moment1, moment2;  // per parameter group
  /// Buffers made per micro-batch: unit_buffers[first slot of the unit + micro_batch · kinds +
  /// kind]. Units get slots when first asked for; -1 = none yet.
  std::vector<std::int32_t> unit_buffers;
  std::vector<std::int32_t> first_slot;  // per unit of the model
  std::array<Draft, kProgramKindCount> drafts;

  Draft& draft(ProgramKind k) { return drafts[static_cast<std::size_t>(k)]; }
};

struct Lowering {
  const Plan& plan;
  const Cluster& cluster;
  Program program;
  std::vector<std::int32_t> unit_stage;  // per unit
  std::vector<ClassDraft> classes;       // one per pipeline coordinate
  CommunicationGroupId world;
  CommunicationGroupId data_parallel;
  CommunicationGroupId embedding;  // invalid without tied copies on several ranks
  std::int64_t micro_batches = 1;

  const UnitClass& class_of(UnitId u) const {
    return program.graph.classes[static_cast<std::size_t>(program.units[u.index()].unit_class)];
  }
  const UnitLayout& layout_of(UnitId u) const { return program.layout_of(u); }
  ParameterGroup& group(ParameterGroupId g) { return program.parameter_groups[g.index()]; }
};

/// The buffer of (unit, micro-batch, kind) on a class; made on first request. Invalid when it
/// would be empty.
BufferId unit_buffer(Lowering& lowering, ClassDraft& c, UnitId unit, std::int32_t micro_batch,
                     UnitBuffer kind);

// The passes, in order.
void pass_mesh(Lowering& lowering, const Schedule& schedule);   // mesh, groups, units on stages
void pass_order(Lowering& lowering, const Schedule& schedule);  // compute and messages by time
void pass_parameters(Lowering& lowering);                       // parameter groups and flat layouts
void pass_state(Lowering& lowering, ClassDraft& c);             // persistent buffers
void pass_compute(Lowering& lowering, ClassDraft& c);           // loads, compute, sends, receives
void pass_gather(Lowering& lowering, ClassDraft& c);      // ZeRO-3 parameters around their uses
void pass_update(Lowering& lowering, ClassDraft& c);      // reductions, norm, optimizer, gathers
void pass_checkpoint(Lowering& lowering, ClassDraft& c);  // load and save programs
void pass_release(Lowering& lowering, ClassDraft& c);     // end of every transient buffer
void pass_memory(Lowering& lowering, ClassDraft& c);      // offsets and waits

/// Whole-buffer access.
inline Access use(const ClassDraft& c, BufferId b, AccessMode mode) {
  return {b, 0, c.result.buffers[b.index()].bytes, mode, false};
}
/// The rank's data-parallel slice of a flat buffer.
inline Access use_slice(BufferId b, std::int64_t slice_bytes, AccessMode mode) {
  return {b, 0, slice_bytes, mode, true};
}

}  // namespace bayplan
