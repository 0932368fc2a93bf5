// Communicator: one of the four virtual seams. Moves bytes between ranks and sums them in rank
// order. Calls block until done, the deadline passes or another rank aborts; the rank's progress
// thread issues them in program order (rank_runner.h), so blocking here does not block compute.
// Implementations: local (ranks are threads), mpi, recording (no data), nccl.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/core/dtype.h"
#include "planner/program/instruction.h"

namespace bayplan::exec {

/// Who asks and why; goes into errors and counters.
struct CallSite {
  std::int64_t step = 0;
  std::string_view instruction;  // text form; must outlive the call
  Purpose purpose = Purpose::kNone;
};

/// One side of a point-to-point message. `data` is read by sends and written by receives.
/// Messages between two ranks match in order per `tag`.
struct Message {
  bool is_send = false;
  int peer = 0;
  int tag = 0;
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  InstructionKind kind = InstructionKind::kSendActivation;  // counters key on the send's kind
  Purpose purpose = Purpose::kNone;
};

/// Bytes this rank sent, per (collective, purpose).
struct WireCount {
  InstructionKind collective{};
  Purpose purpose{};
  std::int64_t bytes = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  /// Performs all messages as one group: none waits for another of the same call.
  virtual void exchange(const CallSite& site, std::span<const Message> messages) = 0;

  // Collectives over `members` (ascending ranks, this rank among them). All members pass equal
  // sizes. `data` holds members.size() equal shards; sums run in rank order: every contribution is
  // as `dtype` on input, added in fp32 (fp64 for fp64) and rounded once to `dtype`.

  /// In: own shard filled. Out: all shards filled.
  virtual void all_gather(const CallSite& site, std::span<const int> members, std::byte* data,
                          std::int64_t shard_bytes) = 0;
  /// In: all shards hold this rank's contribution. Out: own shard holds the sum; the others are
  /// unspecified.
  virtual void reduce_scatter(const CallSite& site, std::span<const int> members, std::byte* data,
                              std::int64_t shard_elements, DType dtype) = 0;
  /// Out: all `elements` hold the sum, bitwise equal on all members.
  virtual void all_reduce(const CallSite& site, std::span<const int> members, std::byte* data,
                          std::int64_t elements, DType dtype) = 0;
  /// members[root] sends, the others receive.
  virtual void broadcast(const CallSite& site, std::span<const int> members, std::byte* data,
                         std::int64_t bytes, int root) = 0;
  /// Returns when all ranks of the world have called it.
  virtual void barrier(const CallSite& site) = 0;

  /// Tells every other rank to stop with `reason`; never blocks, may be called from any thread.
  virtual void abort(const std::string& reason) noexcept = 0;

  /// Counters since construction, ascending by (collective, purpose).
  virtual std::vector<WireCount> wire() const = 0;

  /// Rank that the call in progress waits for, -1 when none. From any thread and from signal
  /// handlers.
  virtual int awaiting() const noexcept { return -1; }
  /// When all partners of the last call had reached it; the epoch when not known.
  virtual std::chrono::steady_clock::time_point matched_at() const { return {}; }
};

}  // namespace bayplan::exec
