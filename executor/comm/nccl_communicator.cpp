#include "executor/comm/nccl_communicator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "executor/comm/nccl_api.h"
#include "executor/comm/poll_pause.h"
#include "executor/comm/rank_sum.h"
#include "executor/comm/wire_counter.h"
#include "executor/error.h"
#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

using Groups = std::vector<std::vector<int>>;

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kFp64:
      return ncclFloat64;
    case DType::kFp32:
      return ncclFloat32;
    case DType::kBf16:
      return ncclBfloat16;
    case DType::kFp16:
      return ncclFloat16;
    case DType::kInt32:
      return ncclInt32;
    case DType::kInt64:
      return ncclInt64;
    case DType::kUint8:
      return ncclUint8;
  }
  return ncclUint8;
}

std::string list_of(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (const int r : ranks) text += (r == ranks.front() ? " " : ", ") + std::to_string(r);
  return text;
}

/// `groups` in rounds of disjoint ones. A round is one ncclCommSplit, which all ranks must join, so
/// the rounds depend on nothing but the set of groups.
std::vector<Groups> split_rounds(Groups groups, int world_size) {
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  std::vector<Groups> rounds;
  std::vector<std::vector<bool>> taken;  // per round, per rank
  for (std::vector<int>& group : groups) {
    BAYPLAN_CHECK(std::is_sorted(group.begin(), group.end()), "members are not ascending");
    if (group.size() < 2 || group.size() == static_cast<std::size_t>(world_size)) continue;
    std::size_t round = 0;
    const auto meets_taken = [&] {
      return std::any_of(group.begin(), group.end(),
                         [&](int r) { return taken[round][static_cast<std::size_t>(r)]; });
    };
    while (round < rounds.size() && meets_taken()) ++round;
    if (round == rounds.size()) {
      rounds.emplace_back();
      taken.emplace_back(static_cast<std::size_t>(world_size), false);
    }
    for (const int r : group) taken[round][static_cast<std::size_t>(r)] = true;
    rounds[round].push_back(std::move(group));
  }
  return rounds;
}

/// A call in progress, for errors.
struct Call {
  const CallSite& site;
  std::string_view action;
  std::span<const int> members;  // for messages: the partners
  std::int64_t bytes = 0;
  int awaited = -1;  // the partner, where there is only one: NCCL does not tell who is missing
  PollPause pause;
};

std::string text_of(const Call& call) {
  std::string text(call.action);
  if (call.bytes > 0) text += " of " + std::to_string(call.bytes) + " bytes";
  return text + (call.action == "exchange" ? " with " : " over ") + list_of(call.members);
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclApi& api, const NcclOptions& options)
      : api_(api),
        options_(options),
        stop_(options.stop != nullptr ? options.stop : std::make_shared<StopSignal>()),
        all_(static_cast<std::size_t>(options.world_size)) {
    std::iota(all_.begin(), all_.end(), 0);
    if (options.world_size > 1) start();
  }
  ~NcclCommunicator() override { close(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  int awaiting() const noexcept override { return awaiting_.load(std::memory_order_relaxed); }
  std::vector<WireCount> wire() const override { return wire_.counts(); }

  void exchange(const CallSite& site, std::span<const Message> messages) override;
  void all_gather(const CallSite& site, std::span<const int> members, std::byte* data,
                  std::int64_t shard_bytes) override;
  void reduce_scatter(const CallSite& site, std::span<const int> members, std::byte* data,
                      std::int64_t shard_elements, DType dtype) override;
  void all_reduce(const CallSite& site, std::span<const int> members, std::byte* data,
                  std::int64_t elements, DType dtype) override;
  void broadcast(const CallSite& site, std::span<const int> members, std::byte* data,
                 std::int64_t bytes, int root) override;
  void barrier(const CallSite& site) override;
  void abort(const std::string& reason) noexcept override;

 private:
  void start();
  void close() noexcept;
  bool finalize(ncclComm_t comm);
  void abort_all() noexcept;

  Call call_over(const CallSite& site, std::string_view action, std::span<const int> members,
                 std::int64_t bytes) const;
  std::size_t index_in(std::span<const int> members) const;
  [[noreturn]] void fail(const Call& call, FailureKind kind, const std::string& cause);
  [[noreturn]] void fail(const Call& call, ncclResult_t result, ncclComm_t comm);
  void check_stop(const Call& call);
  void accept(const Call& call, ncclResult_t result, ncclComm_t comm);
  template <class Done>
  void settle(Call& call, ncclComm_t comm, Done done);
  template <class Issue>
  void run(Call& call, ncclComm_t comm, Issue issue);
  template <class Issue>
  void collective(InstructionKind kind, const CallSite& site, std::span<const int> members,
                  std::int64_t bytes, Issue issue);

  ncclComm_t world() const { return comms_.empty() ? nullptr : comms_.front(); }
  ncclComm_t comm_of(std::span<const int> members) const;
  cudaStream_t stream() const { return static_cast<cudaStream_t>(options_.stream); }

  const NcclApi& api_;
  const NcclOptions options_;
  const std::shared_ptr<StopSignal> stop_;
  std::vector<int> all_;
  std::vector<ncclComm_t> comms_;  // the world, then groups in the order of their making
  std::map<std::vector<int>, ncclComm_t> comm_of_group_;
  std::atomic<int> awaiting_{-1};
  WireCounter wire_;
};

// ---- start, end, failure ------------------------------------------------------------------------

void NcclCommunicator::start() {
  const std::vector<Groups> rounds = split_rounds(options_.groups, options_.world_size);
  const CallSite site{0, "start of NCCL", Purpose::kNone};
  Call call = call_over(site, "start", all_, 0);
  // Non-blocking: every call returns at once and can be given up.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 1;
  ncclUniqueId id;
  static_assert(sizeof id.internal == std::tuple_size_v<NcclId>);
  std::memcpy(id.internal, options_.id.data(), sizeof id.internal);
  run(call, nullptr, [&] {
    comms_.push_back(nullptr);
    return api_.comm_init_rank_config(&comms_.back(), options_.world_size, id, options_.rank,
                                      &config);
  });
  comm_of_group_[all_] = world();
  for (const Groups& round : rounds) {
    int color = NCCL_SPLIT_NOCOLOR;
    for (std::size_t g = 0; g < round.size(); ++g) {
      const bool mine =
          std::find(round[g].begin(), round[g].end(), options_.rank) != round[g].end();
      if (mine) color = static_cast<int>(g);
    }
    Call split = call_over(site, "split", all_, 0);
    ncclComm_t child = nullptr;
    // The child exists only once the parent is through with the split.
    run(split, world(),
        [&] { return api_.comm_split(world(), color, options_.rank, &child, &config); });
    if (child == nullptr) continue;
    const std::vector<int>& members = round[static_cast<std::size_t>(color)];
    comms_.push_back(child);
    comm_of_group_[members] = child;
    Call join = call_over(site, "split", members, 0);
    settle(join, child, [] { return true; });
  }
  awaiting_.store(-1, std::memory_order_relaxed);
}

/// True when `comm` has nothing in flight any more and may be destroyed.
bool NcclCommunicator::finalize(ncclComm_t comm) {
  ncclResult_t state = api_.comm_finalize(comm);
  for (PollPause pause; state == ncclInProgress; pause.pause()) {
    if (stop_->raised() || pause.waited_seconds() > options_.deadline_seconds) return false;
    if (api_.comm_get_async_error(comm, &state) != ncclSuccess) return false;
  }
  return state == ncclSuccess;
}

void NcclCommunicator::close() noexcept {
  try {
    if (!comms_.empty()) api_.set_device(options_.device);
    // Children first: they share the resources of the world.
    while (!stop_->raised() && !comms_.empty() && finalize(comms_.back())) {
      api_.comm_destroy(comms_.back());
      comms_.pop_back();
    }
  } catch (...) {
    // Out of memory; what is left is aborted.
  }
  abort_all();
}

void NcclCommunicator::abort_all() noexcept {
  for (auto comm = comms_.rbegin(); comm != comms_.rend(); ++comm) {
    if (*comm != nullptr) api_.comm_abort(*comm);
  }
  comms_.clear();
  comm_of_group_.clear();
}

void NcclCommunicator::fail(const Call& call, FailureKind kind, const std::string& cause) {
  const ExecutorError error(options_.rank, call.site.step, std::string(call.site.instruction),
                            cause, kind, call.awaited);
  stop_->raise(describe(error));
  // Ends kernels that wait for partners, so that the GPU's memory may be freed.
  abort_all();
  throw error;
}

void NcclCommunicator::fail(const Call& call, ncclResult_t result, ncclComm_t comm) {
  // All arguments come from a verified program, so a wrong one is another than a partner's.
  const FailureKind kind =
      result == ncclInvalidArgument ? FailureKind::kMismatch : FailureKind::kFailed;
  std::string cause = "NCCL, " + text_of(call) + ": " + api_.get_error_string(result);
  const char* const detail = api_.get_last_error(comm);
  if (detail != nullptr && *detail != '\0') cause += std::string(" (") + detail + ")";
  fail(call, kind, cause);
}

void NcclCommunicator::check_stop(const Call& call) {
  if (stop_->raised()) {
    Call obeying = call;
    obeying.awaited = -1;
    fail(obeying, FailureKind::kAborted, stop_->reason());
  }
}

void NcclCommunicator::accept(const Call& call, ncclResult_t result, ncclComm_t comm) {
  if (result != ncclSuccess && result != ncclInProgress) fail(call, result, comm);
}

/// Polls until NCCL has handed the call to the GPU and `done` says that it has ended. This thread
/// is the only one that uses the communicators, so giving up here cannot meet a call elsewhere.
template <class Done>
void NcclCommunicator::settle(Call& call, ncclComm_t comm, Done done) {
  for (;; call.pause.pause()) {
    check_stop(call);
    ncclResult_t state = ncclInProgress;
    accept(call, api_.comm_get_async_error(comm, &state), comm);
    accept(call, state, comm);
    // Before NCCL is through, the stream may be empty because nothing has reached it yet.
    if (state == ncclSuccess && done()) return;
    if (call.pause.waited_seconds() > options_.deadline_seconds) {
      fail(call, FailureKind::kStalled,
           text_of(call) + " did not end within " + std::to_string(options_.deadline_seconds) +
               " s");
    }
  }
}

template <class Issue>
void NcclCommunicator::run(Call& call, ncclComm_t comm, Issue issue) {
  check_stop(call);
  awaiting_.store(call.awaited, std::memory_order_relaxed);
  const auto check_cuda = [&](cudaError_t code) {
    if (code != cudaSuccess && code != cudaErrorNotReady) {
      fail(call, FailureKind::kFailed,
           "CUDA, " + text_of(call) + ": " + api_.cuda_error_string(code));
    }
    return code == cudaSuccess;
  };
  check_cuda(api_.set_device(options_.device));  // the thread may be a new one
  const ncclResult_t issued = issue();
  if (comm == nullptr) comm = world();  // which `issue` has made
  accept(call, issued, comm);
  settle(call, comm, [&] { return check_cuda(api_.stream_query(stream())); });
  // After a failure awaiting_ keeps the partner: whoever explains it follows it.
  awaiting_.store(-1, std::memory_order_relaxed);
}

void NcclCommunicator::abort(const std::string& reason) noexcept {
  stop_->raise(reason);
  try {
    if (options_.tell_others) options_.tell_others(reason);
  } catch (...) {
    // The others stop at their deadlines.
  }
}

// ---- calls --------------------------------------------------------------------------------------

Call NcclCommunicator::call_over(const CallSite& site, std::string_view action,
                                 std::span<const int> members, std::int64_t bytes) const {
  Call call{site, action, members, bytes, -1, {}};
  if (members.size() == 2) call.awaited = members[members[0] == options_.rank ? 1 : 0];
  return call;
}

std::size_t NcclCommunicator::index_in(std::span<const int> members) const {
  const auto at = std::find(members.begin(), members.end(), options_.rank);
  BAYPLAN_CHECK(at != members.end(), "rank is not among the members");
  return static_cast<std::size_t>(at - members.begin());
}

ncclComm_t NcclCommunicator::comm_of(std::span<const int> members) const {
  const auto found = comm_of_group_.find({members.begin(), members.end()});
  BAYPLAN_CHECK(found != comm_of_group_.end(),
                list_of(members) + ": a group that was not named when the communicator was made");
  return found->second;
}

template <class Issue>
void NcclCommunicator::collective(InstructionKind kind, const CallSite& site,
                                  std::span<const int> members, std::int64_t bytes, Issue issue) {
  if (members.size() <= 1) return;
  Call call = call_over(site, instruction_name(kind), members, bytes);
  check_stop(call);
  if (bytes == 0) return;
  const ncclComm_t comm = comm_of(members);
  run(call, comm, [&] { return issue(comm); });
}

void NcclCommunicator::exchange(const CallSite& site, std::span<const Message> messages) {
  // NCCL knows no tags: it pairs the messages of two ranks in the order of their issue, so both
  // sides must issue a group in the same order.
  std::vector<const Message*> ordered;
  std::vector<int> partners;
  std::int64_t bytes = 0;
  for (const Message& m : messages) {
    BAYPLAN_CHECK(m.peer >= 0 && m.peer < options_.world_size && m.peer != options_.rank,
                  "peer out of range");
    if (m.bytes == 0) continue;
    ordered.push_back(&m);
    partners.push_back(m.peer);
    bytes += m.bytes;
  }
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Message* a, const Message* b) { return a->tag < b->tag; });
  std::sort(partners.begin(), partners.end());
  partners.erase(std::unique(partners.begin(), partners.end()), partners.end());
  Call call = call_over(site, "exchange", partners, bytes);
  call.awaited = partners.size() == 1 ? partners.front() : -1;
  check_stop(call);
  if (ordered.empty()) return;
  run(call, world(), [&] {
    accept(call, api_.group_start(), world());
    ncclResult_t first_problem = ncclSuccess;
    for (const Message* m : ordered) {
      const auto count = static_cast<std::size_t>(m->bytes);
      const ncclResult_t issued =
          m->is_send ? api_.send(m->data, count, ncclUint8, m->peer, world(), stream())
                     : api_.recv(m->data, count, ncclUint8, m->peer, world(), stream());
      if (issued == ncclSuccess || issued == ncclInProgress) continue;
      first_problem = issued;
      break;
    }
    const ncclResult_t ended = api_.group_end();  // also after a problem: groups nest
    return first_problem != ncclSuccess ? first_problem : ended;
  });
  wire_.add_sends(messages);
}

void NcclCommunicator::all_gather(const CallSite& site, std::span<const int> members,
                                  std::byte* data, std::int64_t shard_bytes) {
  const auto count = static_cast<std::size_t>(shard_bytes);
  const std::byte* const own = data + index_in(members) * count;
  collective(InstructionKind::kAllGather, site, members, shard_bytes, [&](ncclComm_t comm) {
    return api_.all_gather(own, data, count, ncclUint8, comm, stream());
  });
  wire_.add_shards(InstructionKind::kAllGather, site.purpose, members.size(), shard_bytes);
}

void NcclCommunicator::reduce_scatter(const CallSite& site, std::span<const int> members,
                                      std::byte* data, std::int64_t shard_elements, DType dtype) {
  const std::int64_t shard_bytes = shard_elements * dtype_size(dtype);
  std::byte* const own = data + index_in(members) * static_cast<std::size_t>(shard_bytes);
  collective(InstructionKind::kReduceScatter, site, members, shard_bytes, [&](ncclComm_t comm) {
    return api_.reduce_scatter(data, own, static_cast<std::size_t>(shard_elements),
                               nccl_type(dtype), ncclSum, comm, stream());
  });
  wire_.add_shards(InstructionKind::kReduceScatter, site.purpose, members.size(), shard_bytes);
}

void NcclCommunicator::all_reduce(const CallSite& site, std::span<const int> members,
                                  std::byte* data, std::int64_t elements, DType dtype) {
  const std::int64_t size = dtype_size(dtype);
  const ElementRange own = owned_elements(elements, index_in(members), members.size());
  collective(InstructionKind::kAllReduce, site, members, elements * size, [&](ncclComm_t comm) {
    return api_.all_reduce(data, data, static_cast<std::size_t>(elements), nccl_type(dtype),
                           ncclSum, comm, stream());
  });
  wire_.add_all_reduce(site.purpose, members.size(), elements * size, (own.end - own.begin) * size);
}

void NcclCommunicator::broadcast(const CallSite& site, std::span<const int> members,
                                 std::byte* data, std::int64_t bytes, int root) {
  BAYPLAN_CHECK(root >= 0 && static_cast<std::size_t>(root) < members.size(), "root out of range");
  const bool sends = index_in(members) == static_cast<std::size_t>(root);
  collective(InstructionKind::kBroadcast, site, members, bytes, [&](ncclComm_t comm) {
    return api_.broadcast(data, data, static_cast<std::size_t>(bytes), ncclUint8, root, comm,
                          stream());
  });
  if (sends) wire_.add_shards(InstructionKind::kBroadcast, site.purpose, members.size(), bytes);
}

/// A sum of one word: NCCL has no barrier.
void NcclCommunicator::barrier(const CallSite& site) {
  if (options_.world_size == 1) return;
  Call call = call_over(site, "barrier", all_, 0);
  run(call, world(), [&] {
    return api_.all_reduce(options_.barrier, options_.barrier, 1, ncclInt32, ncclSum, world(),
                           stream());
  });
}

}  // namespace

void StopSignal::raise(const std::string& reason) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return;
    reason_ = reason;
  } catch (...) {
    // Out of memory: the ranks stop without the reason.
  }
  raised_.store(true, std::memory_order_release);
}

std::string StopSignal::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

NcclId make_nccl_id(const NcclApi& api) {
  ncclUniqueId unique;
  const ncclResult_t result = api.get_unique_id(&unique);
  if (result != ncclSuccess) {
    throw ExecutorError(0, 0, "start of NCCL",
                        std::string("ncclGetUniqueId: ") + api.get_error_string(result));
  }
  NcclId id;
  std::memcpy(id.data(), unique.internal, id.size());
  return id;
}

std::unique_ptr<Communicator> make_nccl_communicator(const NcclApi& api,
                                                     const NcclOptions& options) {
  return std::make_unique<NcclCommunicator>(api, options);
}

}  // namespace bayplan::exec
