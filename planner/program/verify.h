// verify(): proves that a Program is sound, or says which property fails and where. Every run
// and every simulation starts with it. Independent of lower(): it derives nothing from plans.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/program/program.h"

namespace bayplan {

enum class Violation : std::uint8_t {
  kMalformed,       // index out of range, wait on itself or on a later instruction
  kDeadlock,        // a rank never finishes under rendezvous semantics
  kUnmatched,       // a send without its receive, or a collective that a member never joins
  kSizeMismatch,    // partners disagree about bytes, dtype or purpose
  kGroupOrder,      // members of a group issue its operations in different orders
  kUseBeforeWrite,  // reads bytes that nothing wrote, or another instruction than before wrote
  kUseAfterRelease,
  kRace,               // two uses of the same bytes, one of them a write, without happens-before
  kOverlap,            // two live buffers share bytes without happens-before
  kAccumulationOrder,  // gradients or losses not added in ascending micro-batch order
  kLeak,               // a transient buffer is never released
  kQueueProgress,      // stalls when all communication of a rank shares one queue
  kMissing,            // the program lacks an instruction that its job needs, or has one twice
  kBudget,             // peak above capacity
};
std::string_view violation_name(Violation v);

struct VerifyFinding {
  Violation violation{};
  ProgramKind program = ProgramKind::kTrainStep;
  int rank = 0;
  InstructionId instruction;
  std::string message;  // one sentence with buffers, peers and sizes named
};

struct VerifyOptions {
  /// Device, host, NVMe bytes of a rank; nullopt = unlimited.
  std::array<std::optional<std::int64_t>, kTierCount> capacity{};
  std::size_t max_findings = 16;
};

/// Empty = verified.
std::vector<VerifyFinding> verify(const Program& program, const VerifyOptions& options = {});

}  // namespace bayplan
