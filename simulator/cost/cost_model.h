// CostModel: what every instruction of a Program costs, before anything waits for anything. The
// simulator asks it once per rank class and instruction, and once per group call; it never asks
// while time passes. Not for: contention and waiting (simulator/engine), byte totals (Program).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "planner/core/cluster.h"
#include "planner/core/units.h"
#include "planner/cost/calibration.h"
#include "planner/program/program.h"

namespace bayplan::sim {

/// An instruction that needs no partner, alone on its device.
struct ComputeCost {
  Picoseconds time;
  Picoseconds issue;         // host time to issue it to an asynchronous device
  std::int32_t threads = 1;  // cores that it keeps busy; CPU only
  /// Time while all cores of the node are busy over `time`.
  double slowdown = 1.0;
};

/// One call that several ranks make together: a message, or a collective.
struct CommunicationCall {
  InstructionKind kind{};  // sends stand for the whole message
  Purpose purpose = Purpose::kNone;
  BufferRole role = BufferRole::kActivation;
  std::int64_t bytes = 0;      // message, or the whole buffer over all shards
  std::span<const int> ranks;  // {sender, receiver}, or the members ascending
};

/// Once all partners have reached the call: `latency` passes, then every participant works for
/// its own `work`; the call is over when the last one is. On GPUs work is the time on the wire; on
/// CPUs it is core time of the rank's progress thread, and waking threads takes `busy_latency`
/// when all cores of the node are busy.
struct CommunicationCost {
  Picoseconds latency;
  Picoseconds busy_latency;
  Picoseconds work;            // of every participant, or of the receiver alone
  bool receiver_only = false;  // messages in shared memory: the receiver copies
  bool needs_core = true;      // CPU only: false where a network card does the work
  double slowdown = 1.0;       // of the work, as in ComputeCost
};

/// Ranks that share the cores of a CPU node. Of n running threads each progresses at
/// min(1, cores/n) / (1 + (slowdown - 1) · crowding[k]), k = min(n, cores) busy cores.
/// cores = 0: devices that share nothing.
struct CpuNodeModel {
  int cores = 0;
  std::vector<double> crowding;  // [k - 1]; empty: in proportion to k - 1
  /// Further loss when threads outnumber cores (context switches, cold caches): time factor.
  double oversubscription = 1.0;
};

/// Relative half-widths of the prediction interval, and where the numbers come from.
struct CostUncertainty {
  double compute = 0.0;
  double communication = 0.0;
  Provenance provenance = Provenance::kSpecification;
};

/// A plain bundle of functions: build one with analytic_costs() or unit_costs().
struct CostModel {
  std::function<ComputeCost(int rank_class, const InstructionList&, const Instruction&)> compute;
  std::function<CommunicationCost(const CommunicationCall&)> communication;
  /// Host time to issue one call to an asynchronous device.
  Picoseconds communication_issue;
  /// Per node group of the cluster; empty = no device shares anything.
  std::vector<CpuNodeModel> nodes;
  CostUncertainty uncertainty;
};

/// Every compute instruction and every call costs one unit (1 ps), releases and end_step nothing;
/// no contention. For conformance tests and hand-checked schedules.
CostModel unit_costs();

/// Roofline on the cluster's device rates and α–β on its links; CPU node groups use `calibration`
/// where there is one. `program` and `cluster` must outlive the model.
CostModel analytic_costs(const Program& program, const Cluster& cluster,
                         std::shared_ptr<const Calibration> calibration = nullptr);

}  // namespace bayplan::sim
