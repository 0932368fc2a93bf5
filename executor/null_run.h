// null_run(): what a Program means, without doing it. One thread plays all ranks and streams under
// a seeded random scheduler that knows only the rules of planner/program/instruction.h, and moves
// symbolic values instead of bytes. A sound Program gives the same values under every seed; a
// Program that deadlocks, races or reads what it should not shows here.
// Not for: running anything (rank_runner.h) nor proving anything (planner/program/verify.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/program/program.h"

namespace bayplan::exec {

enum class NullFault : std::uint8_t {
  kDeadlock,   // nothing can start and instructions are left
  kUnwritten,  // reads bytes that nothing wrote, or that a collective left unspecified
  kReleased,   // uses, or releases, a buffer that is not alive any more
  kForeign,    // reads bytes that another buffer's instruction wrote
  kOverwrite,  // writes over bytes of another live buffer
  kMismatch,   // partners disagree about bytes, kind or purpose
  kMalformed,  // an index that points nowhere, an access outside its buffer
};
std::string_view null_fault_name(NullFault fault);

struct NullFinding {
  NullFault fault{};
  int rank = 0;
  InstructionId instruction;
  std::string message;
};

struct NullRunOptions {
  /// All communication of a rank shares one queue, in issue order, as on one progress thread.
  bool one_communication_queue = false;
  std::size_t max_findings = 8;
};

struct NullRunResult {
  std::vector<NullFinding> findings;
  /// [rank][instruction]: hash of every value that the instruction read (both sides' for matched
  /// ones), including which bytes of what was written. 0 = never ran. Does not depend on arena
  /// offsets nor on the instruction's number.
  std::vector<std::vector<std::uint64_t>> signatures;
  /// [rank]: hash of what all persistent buffers but the workspace hold at the end.
  std::vector<std::uint64_t> state;
  /// Order in which instructions completed, over all ranks.
  struct Completion {
    std::int32_t rank = 0;
    InstructionId instruction;
    friend bool operator==(const Completion&, const Completion&) = default;
  };
  std::vector<Completion> completions;

  bool clean() const { return findings.empty(); }
  /// Equal values everywhere: the comparison of two schedules, or of a mutant and its original.
  bool same_values(const NullRunResult& other) const { return state == other.state; }
};

/// Plays one sub-program once. Persistent buffers start with known contents, except under kLoad.
/// Any Program is accepted, also a malformed one. Equal arguments give equal results.
NullRunResult null_run(const Program& program, ProgramKind kind, std::uint64_t seed,
                       const NullRunOptions& options = {});

}  // namespace bayplan::exec
