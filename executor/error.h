// The world failing during a run: a dead or stalled peer, a full disk, a bad data file. Thrown
// where it happens, caught once in run(). Not for user input (Result) nor our bugs (check.h).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace bayplan::exec {

enum class FailureKind : std::uint8_t {
  kFailed,    // this rank could not go on
  kStalled,   // a peer did not come before the deadline
  kMismatch,  // partners disagree about a message
  kAborted,   // another rank failed first; its error is the one to report
};

/// `code` of the Error that a failure becomes.
constexpr const char* failure_code(FailureKind kind) {
  switch (kind) {
    case FailureKind::kFailed:
      return "rank-failed";
    case FailureKind::kStalled:
      return "rank-stalled";
    case FailureKind::kMismatch:
      return "message-mismatch";
    case FailureKind::kAborted:
      return "run-aborted";
  }
  return "rank-failed";
}

struct ExecutorError : std::runtime_error {
  ExecutorError(int failed_rank, std::int64_t at_step, std::string instruction_text,
                const std::string& cause, FailureKind failure = FailureKind::kFailed,
                int awaited_rank = -1)
      : std::runtime_error(cause),
        rank(failed_rank),
        step(at_step),
        instruction(std::move(instruction_text)),
        kind(failure),
        awaited(awaited_rank) {}
  int rank;
  std::int64_t step;
  std::string instruction;  // text form, or what else the rank did; "" = nothing
  FailureKind kind;
  int awaited;  // rank that this one waited for, -1 = none
};

/// One sentence: who failed, where, why.
inline std::string describe(const ExecutorError& e) {
  std::string text = "rank " + std::to_string(e.rank);
  text += e.kind == FailureKind::kStalled ? " gave up waiting" : " failed";
  if (!e.instruction.empty()) {
    // Calls outside of programs have a description instead, "barrier between steps".
    const bool numbered = e.instruction.size() > 1 && e.instruction[0] == 'i' &&
                          e.instruction[1] >= '0' && e.instruction[1] <= '9';
    text +=
        " at step " + std::to_string(e.step) + (numbered ? ", instruction " : ", ") + e.instruction;
  }
  return text + ": " + e.what();
}

}  // namespace bayplan::exec
