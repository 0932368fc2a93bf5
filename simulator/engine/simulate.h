// simulate(): a discrete-event simulation of a Program on a cluster that need not exist. Integer
// picoseconds; ties are broken by (time, rank, instruction), so output never depends on anything
// but the input. Not for: what an instruction costs (planner/cost), reports (simulator/report).
//
// Semantics. One host per rank issues its list in order; an instruction joins its stream; it
// starts when the stream is free, its waits are done and all partners of its call have reached
// it. Adjacent p2p instructions with one fuse id are one call. GPU ranks issue ahead of their
// device and block only at end_step. CPU ranks compute on the host thread itself, so the host
// issues nothing while it waits or computes; all their communication shares one queue (the
// progress thread); and the ranks of a node share its cores.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/cluster.h"
#include "planner/core/result.h"
#include "planner/program/program.h"
#include "planner/program/timeline.h"
#include "simulator/cost/cost_model.h"
#include "simulator/memory/arena_replay.h"
#include "simulator/report/breakdown.h"

namespace bayplan::sim {

struct SimulateOptions {
  ProgramKind program = ProgramKind::kTrainStep;
  /// Consecutive executions, each begun by all ranks together; the last one is reported.
  int steps = 1;
  /// Fill timeline.events, issued and breakdown; off for search, which only wants the step time.
  bool record = true;
  /// Fill timeline.memory.
  bool record_memory = true;
  /// Also simulate with optimistic and pessimistic costs, for step_time.low and .high.
  bool interval = true;
};

struct TimeInterval {
  Seconds low;
  Seconds mid;
  Seconds high;
};

/// One issued call: `count` instructions from `first` on (more than one when fused).
struct IssuedCall {
  InstructionId first;
  std::int32_t count = 1;
  friend bool operator==(const IssuedCall&, const IssuedCall&) = default;
};

struct SimulationResult {
  Timeline timeline;
  TimeInterval step_time;  // of the steady step
  Provenance provenance = Provenance::kSpecification;
  double tokens_per_second = 0.0;
  double mfu = 0.0;  // 0 when the devices' peak is unknown
  double hfu = 0.0;
  StepBreakdown breakdown;                      // of the steady step; zero unless recorded
  std::vector<RankMemory> memory;               // per rank, over the simulated program
  std::vector<std::vector<IssuedCall>> issued;  // per rank, first step, in the order issued
  std::int64_t events = 0;                      // instructions completed, all steps
};

/// Fails with code "deadlock" (naming ranks, instructions and awaited partners) when ranks stop,
/// and with "cluster-too-small" when the cluster has fewer devices than the program has ranks.
Result<SimulationResult> simulate(const Program& program, const Cluster& cluster,
                                  const CostModel& costs, const SimulateOptions& options = {});

}  // namespace bayplan::sim
