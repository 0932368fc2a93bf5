// The sets of ranks that a Program's collectives run over, for communicators that must make their
// groups before the first call. Not for what a group means (planner/program/program.h).
#pragma once

#include <vector>

#include "planner/program/program.h"

namespace bayplan::exec {

/// Member lists of two or more ranks, each list and the whole ascending, none twice. The same on
/// every rank.
std::vector<std::vector<int>> collective_groups(const Program& program);

}  // namespace bayplan::exec
