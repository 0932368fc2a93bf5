// How a subcommand ends: an exit code, or an Error and the exit code that goes with it.
#pragma once

#include <optional>
#include <utility>

#include "planner/core/result.h"

namespace bayplan::cli {

// The exit codes of the interface.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitBadInput = 2;
constexpr int kExitDoesNotFit = 3;
constexpr int kExitNotVerified = 4;

struct Outcome {
  int exit_code = kExitOk;
  std::optional<Error> error;

  Outcome(int code) : exit_code(code) {}  // NOLINT: implicit by design
  /// Errors are bad input unless said otherwise.
  Outcome(Error e, int code = kExitBadInput) : exit_code(code), error(std::move(e)) {}  // NOLINT
};

}  // namespace bayplan::cli
