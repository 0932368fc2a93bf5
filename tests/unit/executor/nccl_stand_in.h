// A stand-in for the NCCL and CUDA functions that the NCCL communicator calls: ranks are threads,
// device memory is host memory, and a "kernel" ends when all its partners have been issued
// (rendezvous). It is stricter than NCCL: what NCCL leaves undefined (sizes that differ, use of a
// communicator that is busy or gone) is an error here. Not for timing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/comm/nccl_api.h"

namespace bayplan::exec::test {

class NcclStandIn {
 public:
  /// Only one may exist at a time: NCCL's functions have no place for a context.
  NcclStandIn();
  ~NcclStandIn();
  NcclStandIn(const NcclStandIn&) = delete;
  NcclStandIn& operator=(const NcclStandIn&) = delete;

  const NcclApi& api() const;
  cudaStream_t make_stream();

  /// Every call on a non-blocking communicator is in progress for this many polls, and its work
  /// reaches the stream only then. Default 2.
  void set_polls(int polls);
  /// The next call of `rank` (in the world) is accepted, never ends and `error` shows up as the
  /// communicator's asynchronous error.
  void fail_later(int rank, ncclResult_t error);
  /// The next send, receive or collective of `rank` returns `error`.
  void refuse_next(int rank, ncclResult_t error);
  /// Queries of `stream` return `error`.
  void break_stream(cudaStream_t stream, cudaError_t error);

  /// Communicators that were neither destroyed nor aborted.
  int alive() const;
  int aborted() const;
  /// ncclCommSplit calls of all ranks.
  int splits() const;
  /// Wrong uses that no return value could show to a caller that ignores it.
  std::vector<std::string> violations() const;
  void forget_violations();

 private:
  std::unique_ptr<NcclApi> api_;
};

}  // namespace bayplan::exec::test
