// Communicator of ranks that own a GPU each, in one process or in many, over NCCL. NCCL adds in an
// order of its own, so sums are a tolerance class: equal on all members, but not bit for bit those
// of the local and mpi communicators. Not for host memory that the GPU cannot address, nor for
// starting processes.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "executor/comm/communicator.h"

namespace bayplan::exec {

struct NcclApi;  // executor/comm/nccl_api.h

/// Tells all ranks of one process to stop; the first reason counts.
class StopSignal {
 public:
  void raise(const std::string& reason) noexcept;
  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  std::string reason() const;

 private:
  mutable std::mutex mutex_;
  std::string reason_;
  std::atomic<bool> raised_{false};
};

/// What the ranks of a world recognize each other by: made by one rank, given to all.
using NcclId = std::array<char, 128>;
NcclId make_nccl_id(const NcclApi& api);

struct NcclOptions {
  int rank = 0;
  int world_size = 1;
  NcclId id{};
  int device = 0;                    // CUDA ordinal
  void* stream = nullptr;            // cudaStream_t of `device`, used by nobody else
  std::byte* barrier = nullptr;      // 4 bytes of device memory, for barrier()
  double deadline_seconds = 60.0;    // for one call, and for start and end of the communicator
  std::shared_ptr<StopSignal> stop;  // shared by the ranks of one process; null = this rank only
  /// Called by abort(), after `stop` is raised: how ranks in other processes learn of it.
  std::function<void(const std::string& reason)> tell_others;
  /// Member lists that collectives will be called with, the same list on all ranks; the whole
  /// world need not be named. See collective_groups().
  std::vector<std::vector<int>> groups;
};

/// Collective over the world. Returns when all ranks have come; throws ExecutorError. Calls return
/// when the GPU has finished them, so those of different groups never overlap and the order of
/// the plan is the order on the GPU. One thread at a time may use it (abort and awaiting: any).
/// `api` must outlive it.
std::unique_ptr<Communicator> make_nccl_communicator(const NcclApi& api,
                                                     const NcclOptions& options);

}  // namespace bayplan::exec
