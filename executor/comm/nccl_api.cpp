#include "executor/comm/nccl_api.h"

#include <dlfcn.h>

#include <string>

namespace bayplan::exec {
namespace {

constexpr const char* kHint =
    "install the libraries that the torch wheel names, or run on CPU devices";

Error failure(const std::string& message, const std::string& library) {
  return {"no-nccl", message, library, kHint};
}

/// A library stays loaded to the end of the process: NCCL's own threads may outlive its users.
class Library {
 public:
  explicit Library(std::string name)
      : name_(std::move(name)), handle_(::dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      const char* const reason = ::dlerror();
      problem_ = reason == nullptr ? "cannot be loaded" : reason;
    }
  }

  /// Sets `function`, or keeps the first problem.
  template <class Function>
  void find(const char* symbol, Function& function) {
    if (handle_ == nullptr) return;
    function = reinterpret_cast<Function>(::dlsym(handle_, symbol));
    if (function == nullptr && problem_.empty()) problem_ = std::string("it has no ") + symbol;
  }

  Status status() const {
    if (problem_.empty()) return {};
    return failure("cannot use " + name_ + ": " + problem_, name_);
  }

 private:
  std::string name_;
  void* handle_;
  std::string problem_;
};

Result<NcclApi> load() {
  NcclApi api;
  Library runtime("libcudart.so." + std::to_string(CUDART_VERSION / 1000));
  runtime.find("cudaSetDevice", api.set_device);
  runtime.find("cudaStreamQuery", api.stream_query);
  runtime.find("cudaGetErrorString", api.cuda_error_string);
  BAYPLAN_RETURN_IF_ERROR(runtime.status());

  // The name that torch's CUDA library loads too: a process must not have two copies.
  Library nccl("libnccl.so." + std::to_string(NCCL_MAJOR));
  nccl.find("ncclGetVersion", api.get_version);
  nccl.find("ncclGetUniqueId", api.get_unique_id);
  nccl.find("ncclCommInitRankConfig", api.comm_init_rank_config);
  nccl.find("ncclCommSplit", api.comm_split);
  nccl.find("ncclCommFinalize", api.comm_finalize);
  nccl.find("ncclCommDestroy", api.comm_destroy);
  nccl.find("ncclCommAbort", api.comm_abort);
  nccl.find("ncclCommGetAsyncError", api.comm_get_async_error);
  nccl.find("ncclGetErrorString", api.get_error_string);
  nccl.find("ncclGetLastError", api.get_last_error);
  nccl.find("ncclGroupStart", api.group_start);
  nccl.find("ncclGroupEnd", api.group_end);
  nccl.find("ncclSend", api.send);
  nccl.find("ncclRecv", api.recv);
  nccl.find("ncclAllGather", api.all_gather);
  nccl.find("ncclReduceScatter", api.reduce_scatter);
  nccl.find("ncclAllReduce", api.all_reduce);
  nccl.find("ncclBroadcast", api.broadcast);
  BAYPLAN_RETURN_IF_ERROR(nccl.status());

  int version = 0;
  api.get_version(&version);
  // An older library does not know the configuration record of these headers.
  if (version < NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, 0)) {
    return failure("NCCL " + std::to_string(version) + " is older than the " +
                       std::to_string(NCCL_VERSION_CODE) + " that this was compiled for",
                   "libnccl");
  }
  return api;
}

}  // namespace

Result<const NcclApi*> load_nccl() {
  static const Result<NcclApi> loaded = load();
  if (!loaded) return loaded.error();
  return &*loaded;
}

}  // namespace bayplan::exec
