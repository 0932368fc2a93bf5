// Exhaustive search of pp × dp × micro-batch × ZeRO × schedule × chunks for one job on one cluster:
// every layout is lowered, those that fit are scored by a callback, the fastest wins. Scoring is
// the caller's (the simulator), so this file knows no clock. Deterministic.
// Not for: uneven stages, other axes, bounds on what no search looked at.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/core/cluster.h"
#include "planner/core/model_graph.h"
#include "planner/core/plan.h"
#include "planner/core/result.h"
#include "planner/core/units.h"
#include "planner/program/program.h"
#include "planner/search/memory_fit.h"

namespace bayplan {

/// What is given is fixed, what is not is searched.
struct SearchSpace {
  std::optional<int> pp;
  std::optional<int> dp;
  std::optional<std::int64_t> micro_batch;
  std::optional<int> zero;
  std::optional<GradReduce> grad_reduce;  // open: step for ZeRO 0 and 1, micro-batch for 2 and 3
  bool keeps_reshard = false;  // of the base plan; else breadth-first gathers once per chunk
  std::optional<std::string> schedule;  // "table": that of the base plan
  std::optional<int> chunks;            // model chunks per pipeline rank
  Bytes margin;                         // kept free on every device
};

struct Evaluated {
  Plan plan;
  bool fits = false;
  Bytes peak;    // device bytes of the tightest rank class
  Bytes room;    // capacity − peak there; negative when it does not fit
  Seconds step;  // scored layouts only
  bool scored = false;
};

struct SearchResult {
  std::vector<Evaluated> evaluated;  // in the order of enumeration
  std::optional<std::size_t> best;   // fastest that fits
  std::size_t roomiest = 0;          // most room left, fitting or not
  std::string space;                 // in words
};

/// Step time of a program.
using ScoringCallback = std::function<Result<Seconds>(const Program&)>;
/// Called before each layout with how many are done and how many there are.
using SearchProgress = std::function<void(std::size_t done, std::size_t all)>;

/// Every legal layout of `base` on its devices inside `space`: pp ascending, then micro-batch,
/// ZeRO, schedule and chunks. `base` gives the job, names, threads and what is not searched.
/// Layouts that cannot differ from one listed are left out: ZeRO 1 to 3 with one replica, other
/// schedules than 1F1B with one pipeline rank, GPipe with one micro-batch. Errors: "world-size" and
/// "batch-not-divisible" when nothing is left.
Result<std::vector<Plan>> enumerate_layouts(const Plan& base, const SearchSpace& space,
                                            const ModelGraph& graph, int devices);

/// Evaluates enumerate_layouts. Ties in time go to the layout with more room, then to the earlier
/// one. A layout that cannot be lowered is left out; when none can, the first error is returned.
Result<SearchResult> search_layouts(const Plan& base, const SearchSpace& space,
                                    const ModelGraph& graph, const Cluster& cluster,
                                    const ScoringCallback& score,
                                    const SearchProgress& progress = {});

}  // namespace bayplan
