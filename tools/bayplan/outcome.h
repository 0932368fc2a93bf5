// How a subcommand ends: an exit code, or an Error and the exit code that goes with it.
#pragma once

#include <optional>
#include <utility>

#include "planner/core/result.h"

namespace bayplan::cli {

// The exit codes of the interface.
constexpr int kOk = 0;
constexpr int kFailedWhileRunning = 1;
constexpr int kBadInput = 2;
constexpr int kDoesNotFit = 3;
constexpr int kNotVerified = 4;

struct Outcome {
  int exit_code = kOk;
  std::optional<Error> error;

  Outcome(int code) : exit_code(code) {}  // NOLINT: implicit by design
  /// Errors are bad input unless said otherwise.
  Outcome(Error e, int code = kBadInput) : exit_code(code), error(std::move(e)) {}  // NOLINT
};

}  // namespace bayplan::cli
