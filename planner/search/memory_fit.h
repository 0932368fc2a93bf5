// What a Program needs of each device against what the device has. Not for: what could be changed
// (tools/bayplan/fit.cpp) or how memory moves over time (simulator/memory).
#pragma once

#include <vector>

#include "planner/core/cluster.h"
#include "planner/core/infeasible.h"
#include "planner/core/units.h"
#include "planner/program/program.h"

namespace bayplan {

/// One rank class on its device. device = allocated + the runtime's context.
struct RankMemoryNeed {
  int rank = 0;  // the first of the class
  int count = 0;
  int stage = 0;                                 // the first that the class holds
  ProgramKind moment = ProgramKind::kTrainStep;  // sub-program that needs the most
  Bytes allocated;                               // arena on the device tier
  Bytes device;
  Bytes capacity;
  Bytes host;  // arena on the host tier
  /// The buffers that are live where the arena is fullest, by term, largest first; what no buffer
  /// covers there is "fragmentation". With the context they sum to `device`.
  std::vector<MemoryTerm> terms;
};

/// One entry per rank class, in class order. The cluster has at least the program's ranks.
std::vector<RankMemoryNeed> memory_needs(const Program& program, const Cluster& cluster);

/// Index of the class with the least room left (capacity − device); the first of equals.
std::size_t tightest(const std::vector<RankMemoryNeed>& needs);

/// The host arenas of every node fit its host memory.
bool fits_host(const std::vector<RankMemoryNeed>& needs, const Program& program,
               const Cluster& cluster);

}  // namespace bayplan
