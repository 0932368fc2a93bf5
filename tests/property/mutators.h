// Ways to break a sound program, one at a time. A mutant need not misbehave: a dropped wait may
// have been redundant. Whether it does is for exec::null_run() to say.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>

#include "planner/program/program.h"
#include "planner/program/verify.h"

namespace bayplan::test {

struct Mutant {
  Program program;
  ProgramKind kind = ProgramKind::kTrainStep;  // sub-program that was changed
  std::string what;
};

struct Mutator {
  std::string_view name;
  /// nullopt when the program has nothing of the kind to break.
  std::optional<Mutant> (*mutate)(const Program&, std::mt19937_64&) = nullptr;
  /// Reasons that are right for what it breaks.
  std::span<const Violation> reasons;
};

/// dropped wait · swapped order · wrong size · early release · overlapping bytes · missing peer ·
/// cycle · accumulation order
std::span<const Mutator> mutators();

}  // namespace bayplan::test
