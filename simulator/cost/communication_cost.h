// α–β cost of calls that ranks make together. Legend: n members, α latency, β bytes per second.
//   message: α + bytes/β · all_gather, reduce_scatter: (n-1)(α + bytes/(nβ)) on a ring ·
//   all_reduce: twice that · broadcast: (n-1)α + bytes/β, pipelined
//   (Thakur, Rabenseifner, Gropp 2005; bytes = the whole buffer).
// Ranks of one CPU node are threads that copy and sum in each other's memory
// (executor/comm/local.h): their cost is core time plus the waking of threads.
#pragma once

#include "planner/core/cluster.h"
#include "planner/cost/calibration.h"
#include "simulator/cost/cost_model.h"

namespace bayplan::sim {

/// The slowest link between any two of the ranks.
Link slowest_link(const Cluster& cluster, std::span<const int> ranks);

/// Calls over links. On CPUs the transfer needs no core.
CommunicationCost link_cost(const Link& link, const CommunicationCall& call);

/// Threads of one process on a calibrated machine.
CommunicationCost shared_memory_cost(const Calibration& calibration, const StreamRates& rates,
                                     const CommunicationCall& call);

}  // namespace bayplan::sim
