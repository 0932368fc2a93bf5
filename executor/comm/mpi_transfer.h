// One group of point-to-point transfers over MPI: all started together, polled until done, the
// deadline has passed or another thread aborts. For mpi_communicator.cpp only.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "executor/comm/communicator.h"

namespace bayplan::exec {

/// What the sender says about the bytes that follow; the receiver must expect exactly this.
struct TransferHeader {
  std::int64_t bytes = 0;
  std::uint64_t group = 0;  // hash of a collective's members; 0 for messages
  std::int32_t kind = 0;
  std::int32_t purpose = 0;
  std::int32_t dtype = 0;
  std::int32_t magic = 0x42504d31;  // "BPM1"
  friend bool operator==(const TransferHeader&, const TransferHeader&) = default;
};

struct Transfer {
  bool is_send = false;
  int peer = 0;
  int tag = 0;
  std::byte* data = nullptr;
  TransferHeader header;  // sent, or expected
};

struct TransferLimits {
  int rank = 0;
  double deadline_seconds = 60.0;
  std::atomic<int>* awaiting = nullptr;  // set to the awaited peer while polling
};

/// Performs all transfers; those with equal (peer, tag, direction) in order. Throws ExecutorError;
/// MPI then still owns the buffers, so the process must end. Returns when the last header arrived.
std::chrono::steady_clock::time_point run_transfers(MPI_Comm comm, const CallSite& site,
                                                    const TransferLimits& limits,
                                                    const std::vector<Transfer>& transfers);

}  // namespace bayplan::exec
