// The functions of NCCL and of the CUDA runtime that nccl_communicator.cpp calls, as a table. It is
// filled from the real libraries, which are loaded on demand so that nothing links them, or by a
// stand-in in tests. Not for computing: devices call CUDA themselves.
#pragma once

#include <nccl.h>

#include "planner/core/result.h"

namespace bayplan::exec {

struct NcclApi {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommSplit) comm_split = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  // CUDA runtime
  decltype(&cudaSetDevice) set_device = nullptr;
  decltype(&cudaStreamQuery) stream_query = nullptr;
  decltype(&cudaGetErrorString) cuda_error_string = nullptr;
};

/// Loads libnccl.so.2 and the CUDA runtime that this was compiled for; the same table on every
/// call. Fails with `no-nccl` when one is missing, lacks a function or is of another major version.
Result<const NcclApi*> load_nccl();

}  // namespace bayplan::exec
