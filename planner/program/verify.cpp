#include "planner/program/verify.h"

#include <algorithm>

#include "planner/program/text.h"
#include "planner/program/text_names.h"
#include "planner/program/verify_internal.h"

namespace bayplan {
namespace verification {

std::string describe(const InstructionList& list, std::int32_t instruction) {
  const Instruction& i = list.instructions[static_cast<std::size_t>(instruction)];
  InstructionList bare;
  bare.instructions.push_back(i);
  bare.instructions.front().accesses = {};
  bare.instructions.front().waits = {};
  return "i" + std::to_string(instruction) + to_text(bare, InstructionId(0)).substr(2);
}

std::string describe_contents(const Buffer& b) {
  std::string s(b.region == Region::kNone ? buffer_role_name(b.role)
                                          : text::kRegionWords[static_cast<std::size_t>(b.region)]);
  if (b.unit.valid()) s += " of unit " + std::to_string(b.unit.value);
  if (b.parameter_group.valid()) s += " of group " + std::to_string(b.parameter_group.value);
  if (b.micro_batch >= 0) s += ", micro-batch " + std::to_string(b.micro_batch);
  return s;
}

std::string describe(const RankClass& rank_class, BufferId buffer) {
  return "b" + std::to_string(buffer.value) + " (" +
         describe_contents(rank_class.buffers[buffer.index()]) + ")";
}

std::string describe(ByteInterval bytes) {
  return "bytes " + std::to_string(bytes.begin) + " to " + std::to_string(bytes.end);
}

AxisSet effective_axes(const Mesh& mesh, AxisSet axes) {
  AxisSet result = 0;
  for (int a = 0; a < kAxisCount; ++a) {
    const AxisSet bit = axis_bit(static_cast<Axis>(a));
    if ((axes & bit) != 0 && mesh.degree(static_cast<Axis>(a)) > 1) {
      result = static_cast<AxisSet>(result | bit);
    }
  }
  return result;
}

std::int64_t degree(const Mesh& mesh, AxisSet axes) {
  std::int64_t n = 1;
  for (int a = 0; a < kAxisCount; ++a) {
    if ((axes & axis_bit(static_cast<Axis>(a))) != 0) n *= mesh.degree(static_cast<Axis>(a));
  }
  return n;
}

std::int64_t slice_count(const Program& program, const Instruction& i, const Buffer& buffer) {
  if (i.group.valid() && i.kind != InstructionKind::kAllReduce) {
    const CommunicationGroup& group = program.communication_groups[i.group.index()];
    const std::int64_t n = degree(program.mesh, group.axes);
    if (group.pp_coordinates.empty() || (group.axes & axis_bit(Axis::kPp)) == 0) return n;
    return n / program.mesh.pp * static_cast<std::int64_t>(group.pp_coordinates.size());
  }
  if (!buffer.parameter_group.valid()) return 0;
  return degree(program.mesh, program.parameter_groups[buffer.parameter_group.index()].shard_axes);
}

namespace {

Folding fold(const Program& program) {
  const Mesh& mesh = program.mesh;
  const int world = program.world_size();
  const int per_stage = world / mesh.pp;  // ranks of one pipeline coordinate are neighbours
  bool symmetric = true;
  for (int rank = 0; rank < world; ++rank) {
    symmetric =
        symmetric && program.rank_class[static_cast<std::size_t>(rank)] ==
                         program.rank_class[static_cast<std::size_t>(rank / per_stage * per_stage)];
  }
  Folding folding;
  for (int rank = 0; rank < world; ++rank) {
    if (!symmetric || rank % per_stage == 0) folding.players.push_back(rank);
    folding.player_of.push_back(static_cast<std::int32_t>(folding.players.size()) - 1);
  }
  return folding;
}

void check_class(const Program& program, std::int32_t index, int first_rank,
                 const VerifyOptions& options, Findings& findings) {
  const RankClass& rank_class = program.classes[static_cast<std::size_t>(index)];
  check_buffer_sizes(program, rank_class, first_rank, findings);
  check_budget(rank_class, first_rank, options, findings);
  for (int k = 0; k < kProgramKindCount; ++k) {
    const auto kind = static_cast<ProgramKind>(k);
    const ClassProgram p{program, rank_class, rank_class.programs[static_cast<std::size_t>(k)],
                         kind, first_rank};
    const HappensBefore order(p.list);
    check_groups(p, findings);
    check_accumulation(p, findings);
    check_accesses(p, findings);
    check_completeness(p, order, findings);
    for (int rank : hazard_ranks(program, index, kind)) check_hazards(p, rank, order, findings);
    check_sharing(p, order, findings);
  }
}

}  // namespace
}  // namespace verification

std::string_view violation_name(Violation v) {
  switch (v) {
    case Violation::kMalformed:
      return "malformed";
    case Violation::kDeadlock:
      return "deadlock";
    case Violation::kUnmatched:
      return "unmatched";
    case Violation::kSizeMismatch:
      return "size-mismatch";
    case Violation::kGroupOrder:
      return "group-order";
    case Violation::kUseBeforeWrite:
      return "use-before-write";
    case Violation::kUseAfterRelease:
      return "use-after-release";
    case Violation::kRace:
      return "race";
    case Violation::kOverlap:
      return "overlap";
    case Violation::kAccumulationOrder:
      return "accumulation-order";
    case Violation::kLeak:
      return "leak";
    case Violation::kQueueProgress:
      return "queue-progress";
    case Violation::kMissing:
      return "missing";
    case Violation::kBudget:
      return "budget";
  }
  return "?";
}

std::vector<VerifyFinding> verify(const Program& program, const VerifyOptions& options) {
  using namespace verification;
  Findings findings(options.max_findings);
  check_form(program, findings);
  if (!findings.empty()) return findings.take();
  check_batch(program, findings);
  const Folding folding = fold(program);
  for (int k = 0; k < kProgramKindCount; ++k) {
    const auto kind = static_cast<ProgramKind>(k);
    const Matching matching = check_matching(program, kind, folding, findings);
    if (matching.complete) check_progress(program, kind, folding, matching, findings);
  }
  std::vector<bool> seen(program.classes.size(), false);
  for (int rank = 0; rank < program.world_size() && !findings.full(); ++rank) {
    const std::int32_t index = program.rank_class[static_cast<std::size_t>(rank)];
    if (seen[static_cast<std::size_t>(index)]) continue;
    seen[static_cast<std::size_t>(index)] = true;
    check_class(program, index, rank, options, findings);
  }
  return findings.take();
}

}  // namespace bayplan
