// "It does not fit" is an answer, not an error: which stage, by how much, why, what would help.
#pragma once

#include <string>
#include <vector>

#include "planner/core/units.h"

namespace bayplan {

struct MemoryTerm {
  std::string name;  // keys of `terms` in the fit JSON
  Bytes bytes;
};

struct Infeasible {
  int stage = 0;
  Bytes needed;
  Bytes capacity;
  std::vector<MemoryTerm> terms;  // largest first
};

}  // namespace bayplan
