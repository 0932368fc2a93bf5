#include "simulator/cost/communication_cost.h"

#include <algorithm>

namespace bayplan::sim {
namespace {

/// Rounds and the share of the buffer that crosses every member's link.
struct RingWork {
  double rounds = 0.0;
  double share = 0.0;
};

RingWork ring_work(InstructionKind kind, double n) {
  if (is_send(kind) || is_recv(kind)) return {1.0, 1.0};
  if (n <= 1.0) return {};
  const double pass = (n - 1.0) / n;
  if (kind == InstructionKind::kAllReduce) return {2.0 * (n - 1.0), 2.0 * pass};
  if (kind == InstructionKind::kBroadcast) return {n - 1.0, 1.0};
  // all_to_all sends every member but oneself its part, like the other two.
  return {n - 1.0, pass};
}

// Hand-overs between threads in one call, each a wake-up: host to progress thread, to the
// members that wait, back among them when all have read, and to the host.
constexpr double kMessageWakes = 3.0;
constexpr double kCollectiveWakes = 4.0;
constexpr double kSecondMeetingWakes = 2.0;  // all_reduce meets twice

}  // namespace

Link slowest_link(const Cluster& cluster, std::span<const int> ranks) {
  const DevicePlace first = place_of(cluster, ranks.front());
  Link slowest = cluster.groups[static_cast<std::size_t>(first.group)].intra_node;
  for (const int rank : ranks.subspan(1)) {
    const DevicePlace place = place_of(cluster, rank);
    const Link& link = place.node != first.node
                           ? cluster.inter_node
                           : cluster.groups[static_cast<std::size_t>(place.group)].intra_node;
    if (link.bandwidth < slowest.bandwidth) slowest.bandwidth = link.bandwidth;
    if (slowest.latency < link.latency) slowest.latency = link.latency;
  }
  return slowest;
}

CommunicationCost link_cost(const Link& link, const CommunicationCall& call) {
  const RingWork ring = ring_work(call.kind, static_cast<double>(call.ranks.size()));
  CommunicationCost cost;
  cost.latency = to_picoseconds(Seconds(link.latency.value * ring.rounds));
  cost.busy_latency = cost.latency;
  cost.work =
      to_picoseconds(Seconds(static_cast<double>(call.bytes) * ring.share / link.bandwidth.value));
  cost.needs_core = false;
  return cost;
}

CommunicationCost shared_memory_cost(const Calibration& calibration, const StreamRates& rates,
                                     const CommunicationCall& call) {
  const double n = static_cast<double>(call.ranks.size());
  const double bytes = static_cast<double>(call.bytes);
  const bool message = is_send(call.kind) || is_recv(call.kind);
  CommunicationCost cost;
  if (!message && n <= 1.0) return cost;

  const double slice = bytes / n;
  // A sum reads n slices and writes one; a copy moves what the others own.
  const double sum = (n + 1.0) * slice / rates.sum_bytes;
  const double copy = (n - 1.0) * slice / calibration.copy_bytes;
  double seconds = 0.0;
  double wakes = kCollectiveWakes;
  if (message) {
    cost.receiver_only = true;
    wakes = kMessageWakes;
    seconds = bytes / calibration.copy_bytes;
  } else if (call.kind == InstructionKind::kReduceScatter) {
    seconds = sum;
  } else if (call.kind == InstructionKind::kAllReduce) {
    seconds = sum + copy;
    wakes += kSecondMeetingWakes;
  } else if (call.kind == InstructionKind::kBroadcast) {
    seconds = bytes / calibration.copy_bytes;
  } else {
    seconds = copy;
  }
  cost.latency = to_picoseconds(Seconds(calibration.wake_idle.value * wakes));
  cost.busy_latency = to_picoseconds(Seconds(calibration.wake_busy.value * wakes));
  cost.slowdown = calibration.memory_slowdown;
  cost.work = to_picoseconds(Seconds(seconds / cost.slowdown));
  return cost;
}

}  // namespace bayplan::sim
