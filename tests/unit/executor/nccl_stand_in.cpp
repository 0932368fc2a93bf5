#include "tests/unit/executor/nccl_stand_in.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <set>

#include "executor/comm/rank_sum.h"

namespace {

enum class Verb { kSend, kReceive, kAllGather, kReduceScatter, kAllReduce, kBroadcast };

/// One send, receive or collective of one rank.
struct Operation {
  Verb verb{};
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type{};
  int other = 0;  // peer or root
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  bool done = false;

  bool agrees(const Operation& o) const {
    return verb == o.verb && count == o.count && type == o.type && other == o.other;
  }
};

/// What one group call puts on one stream.
struct Kernel {
  std::list<Operation> operations;  // queues point into it
  bool posted = false;
};

/// What the ranks of one communicator share.
struct Clique {
  explicit Clique(int size)
      : comms(static_cast<std::size_t>(size), nullptr), queues(comms.size()) {}
  struct SplitCall {
    int color = 0;
    int key = 0;
    ncclComm_t* out = nullptr;
  };
  std::vector<ncclComm*> comms;  // per rank; null: not here
  std::vector<std::deque<Operation*>> queues;
  std::map<std::pair<int, int>, std::deque<Operation*>> sends, receives;  // (from, to)
  std::map<int, SplitCall> splitting;                                     // per rank
  std::set<int> finalized;
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int world_rank = 0;
  ncclResult_t state = ncclInProgress;
  int polls_left = 0;
  std::vector<std::pair<cudaStream_t, std::unique_ptr<Kernel>>> behind;  // not yet on a stream
};

struct CUstream_st {
  std::deque<std::unique_ptr<Kernel>> kernels;
  cudaError_t broken = cudaSuccess;
};

namespace bayplan::exec::test {
namespace {

using Guard = std::lock_guard<std::mutex>;

struct StandInState {
  std::mutex mutex;
  int polls = 2;
  std::uint64_t next_id = 1;
  std::map<std::uint64_t, std::shared_ptr<Clique>> worlds;
  std::map<ncclComm*, std::unique_ptr<ncclComm>> alive;
  std::vector<std::unique_ptr<CUstream_st>> streams;
  std::map<int, ncclResult_t> fail_later, refuse_next;
  int aborted = 0;
  int splits = 0;
  std::vector<std::string> violations;

  bool knows(ncclComm* comm, const char* who) {
    if (alive.contains(comm)) return true;
    violations.push_back(std::string(who) + " of a communicator that does not exist");
    return false;
  }
  ncclResult_t busy(ncclComm* comm) {
    comm->polls_left = polls;
    return polls > 0 || comm->state == ncclInProgress ? ncclInProgress : comm->state;
  }
  void become(Clique& clique, ncclResult_t state) {
    for (ncclComm* comm : clique.comms) {
      if (comm != nullptr) comm->state = state;
    }
  }
  ncclComm* add(std::shared_ptr<Clique> clique, int rank, int world_rank) {
    auto comm = std::make_unique<ncclComm>();
    comm->clique = std::move(clique);
    comm->rank = rank;
    comm->world_rank = world_rank;
    ncclComm* const key = comm.get();
    comm->clique->comms[static_cast<std::size_t>(rank)] = key;
    alive[key] = std::move(comm);
    return key;
  }
  void remove(ncclComm* comm);
  void finish_split(Clique& parent);
  void put_on_stream(ncclComm* comm);
  void post(Operation& operation);
  bool meet_collective(Clique& clique);
  bool meet_messages(Clique& clique);
  void advance();
};

StandInState* current = nullptr;

struct OpenGroup {
  int depth = 0;
  ncclResult_t problem = ncclSuccess;
  std::vector<Operation> operations;
};
thread_local OpenGroup open_group;

std::size_t size_of(ncclDataType_t type) {
  const auto is = [&](std::initializer_list<ncclDataType_t> types) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  if (is({ncclFloat64, ncclInt64, ncclUint64})) return 8;
  if (is({ncclFloat32, ncclInt32, ncclUint32})) return 4;
  return is({ncclFloat16, ncclBfloat16}) ? 2 : 1;
}

/// Sums as the local communicator does, so that results can be compared bit for bit.
void sum_into(void* out, const std::vector<const std::byte*>& inputs, std::size_t count,
              ncclDataType_t type) {
  auto* const to = static_cast<std::byte*>(out);
  const auto n = static_cast<std::int64_t>(count);
  if (type == ncclFloat64) return sum_in_rank_order(to, inputs, n, DType::kFp64);
  if (type == ncclFloat32) return sum_in_rank_order(to, inputs, n, DType::kFp32);
  if (type == ncclBfloat16) return sum_in_rank_order(to, inputs, n, DType::kBf16);
  for (std::size_t i = 0; i < count; ++i) {  // the others are only summed as 32-bit integers
    std::uint32_t sum = 0;
    for (const std::byte* input : inputs) {
      std::uint32_t value = 0;
      std::memcpy(&value, input + 4 * i, 4);
      sum += value;
    }
    std::memcpy(to + 4 * i, &sum, 4);
  }
}

void perform(const std::vector<Operation*>& all) {
  const Operation& first = *all.front();
  const std::size_t bytes = first.count * size_of(first.type);
  const auto in = [&](std::size_t i) { return static_cast<const std::byte*>(all[i]->in); };
  const auto out = [&](std::size_t i) { return static_cast<std::byte*>(all[i]->out); };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (first.verb == Verb::kAllGather) {
      for (std::size_t j = 0; j < all.size(); ++j) std::memmove(out(j) + i * bytes, in(i), bytes);
    } else if (first.verb == Verb::kBroadcast) {
      std::memmove(out(i), in(static_cast<std::size_t>(first.other)), bytes);
    } else if (first.verb == Verb::kReduceScatter) {
      std::vector<const std::byte*> inputs;
      for (std::size_t j = 0; j < all.size(); ++j) inputs.push_back(in(j) + i * bytes);
      sum_into(out(i), inputs, first.count, first.type);
    }
  }
  if (first.verb == Verb::kAllReduce) {
    std::vector<const std::byte*> inputs;
    for (std::size_t j = 0; j < all.size(); ++j) inputs.push_back(in(j));
    std::vector<std::byte> sum(bytes + 8);
    sum_into(sum.data(), inputs, first.count, first.type);
    for (std::size_t j = 0; j < all.size(); ++j) std::memcpy(out(j), sum.data(), bytes);
  }
}

void StandInState::post(Operation& o) {
  Clique& clique = *o.comm->clique;
  if (o.verb == Verb::kSend) {
    clique.sends[{o.comm->rank, o.other}].push_back(&o);
  } else if (o.verb == Verb::kReceive) {
    clique.receives[{o.other, o.comm->rank}].push_back(&o);
  } else {
    clique.queues[static_cast<std::size_t>(o.comm->rank)].push_back(&o);
  }
}

bool StandInState::meet_collective(Clique& clique) {
  std::vector<Operation*> all;
  for (std::deque<Operation*>& queue : clique.queues) {
    if (queue.empty()) return false;
    all.push_back(queue.front());
  }
  if (all.front()->comm->state != ncclSuccess) return false;  // after a mismatch nothing moves
  for (const Operation* o : all) {
    if (!o->agrees(*all.front())) {
      become(clique, ncclInvalidArgument);
      return false;
    }
  }
  perform(all);
  for (std::deque<Operation*>& queue : clique.queues) {
    queue.front()->done = true;
    queue.pop_front();
  }
  return true;
}

bool StandInState::meet_messages(Clique& clique) {
  bool moved = false;
  for (auto& [pair, sends] : clique.sends) {
    std::deque<Operation*>& receives = clique.receives[pair];
    while (!sends.empty() && !receives.empty()) {
      Operation& from = *sends.front();
      Operation& to = *receives.front();
      if (from.comm->state != ncclSuccess || to.comm->state != ncclSuccess) break;
      if (from.count != to.count || from.type != to.type) {
        from.comm->state = to.comm->state = ncclInvalidArgument;
        break;
      }
      std::memmove(to.out, from.in, from.count * size_of(from.type));
      from.done = to.done = moved = true;
      sends.pop_front();
      receives.pop_front();
    }
  }
  return moved;
}

/// Posts what is at the front of each stream and lets partners meet, until nothing moves.
void StandInState::advance() {
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& stream : streams) {
      while (!stream->kernels.empty()) {
        Kernel& kernel = *stream->kernels.front();
        if (!kernel.posted) {
          kernel.posted = moved = true;
          for (Operation& o : kernel.operations) post(o);
        }
        if (!std::all_of(kernel.operations.begin(), kernel.operations.end(),
                         [](const Operation& o) { return o.done; })) {
          break;
        }
        stream->kernels.pop_front();
        moved = true;
      }
    }
    std::set<Clique*> cliques;
    for (const auto& [comm, owned] : alive) cliques.insert(comm->clique.get());
    for (Clique* clique : cliques) {
      moved = meet_collective(*clique) || moved;
      moved = meet_messages(*clique) || moved;
    }
  }
}

void StandInState::put_on_stream(ncclComm* comm) {
  for (auto& [stream, kernel] : comm->behind) {
    if (const auto failing = fail_later.find(comm->world_rank); failing != fail_later.end()) {
      comm->state = failing->second;
      fail_later.erase(failing);
      kernel->posted = true;  // it runs, but its partners never see it
    }
    stream->kernels.push_back(std::move(kernel));
  }
  comm->behind.clear();
  advance();
}

void StandInState::remove(ncclComm* comm) {
  Clique& clique = *comm->clique;
  const auto forget = [&](std::deque<Operation*>& queue) {
    std::erase_if(queue, [&](const Operation* o) { return o->comm == comm; });
  };
  for (std::deque<Operation*>& queue : clique.queues) forget(queue);
  for (auto& [pair, queue] : clique.sends) forget(queue);
  for (auto& [pair, queue] : clique.receives) forget(queue);
  clique.splitting.erase(comm->rank);
  clique.comms[static_cast<std::size_t>(comm->rank)] = nullptr;
  for (const auto& stream : streams) {
    for (const auto& kernel : stream->kernels) {
      std::erase_if(kernel->operations, [&](const Operation& o) { return o.comm == comm; });
    }
  }
  alive.erase(comm);
  advance();
}

void StandInState::finish_split(Clique& parent) {
  if (parent.splitting.size() != parent.comms.size()) return;
  std::map<int, std::vector<std::pair<int, int>>> colors;  // (key, parent rank), ascending
  for (const auto& [rank, call] : parent.splitting) {
    *call.out = nullptr;
    if (call.color >= 0) colors[call.color].emplace_back(call.key, rank);
  }
  for (auto& [color, members] : colors) {
    std::sort(members.begin(), members.end());
    const auto child = std::make_shared<Clique>(static_cast<int>(members.size()));
    for (std::size_t i = 0; i < members.size(); ++i) {
      const int rank = members[i].second;
      const ncclComm* const from = parent.comms[static_cast<std::size_t>(rank)];
      ncclComm* const comm = add(child, static_cast<int>(i), from->world_rank);
      comm->state = ncclSuccess;
      comm->polls_left = polls;
      *parent.splitting[rank].out = comm;
    }
  }
  parent.splitting.clear();
  become(parent, ncclSuccess);
}

bool sound(const ncclConfig_t* config) {
  const ncclConfig_t expected = NCCL_CONFIG_INITIALIZER;
  if (config == nullptr || config->magic != expected.magic || config->size != expected.size) {
    return false;
  }
  if (config->blocking != 0) current->violations.push_back("a blocking communicator");
  return true;
}

// ---- the functions ------------------------------------------------------------------------------

ncclResult_t get_version(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t get_unique_id(ncclUniqueId* id) {
  const Guard guard(current->mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, &current->next_id, sizeof current->next_id);
  ++current->next_id;
  return ncclSuccess;
}

ncclResult_t comm_init(ncclComm_t* out, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const Guard guard(current->mutex);
  std::uint64_t key = 0;
  std::memcpy(&key, id.internal, sizeof key);
  if (key == 0 || key >= current->next_id || rank < 0 || rank >= size || !sound(config)) {
    return ncclInvalidArgument;
  }
  std::shared_ptr<Clique>& world = current->worlds[key];
  if (world == nullptr) world = std::make_shared<Clique>(size);
  if (world->comms.size() != static_cast<std::size_t>(size) ||
      world->comms[static_cast<std::size_t>(rank)] != nullptr) {
    return ncclInvalidUsage;
  }
  *out = current->add(world, rank, rank);
  if (std::find(world->comms.begin(), world->comms.end(), nullptr) == world->comms.end()) {
    current->become(*world, ncclSuccess);
  }
  return current->busy(*out);
}

ncclResult_t comm_split(ncclComm_t comm, int color, int key, ncclComm_t* out,
                        ncclConfig_t* config) {
  const Guard guard(current->mutex);
  if (!current->knows(comm, "split") || !sound(config)) return ncclInvalidArgument;
  if (comm->state != ncclSuccess || comm->polls_left > 0) return ncclInvalidArgument;
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) return ncclInvalidArgument;
  ++current->splits;
  comm->state = ncclInProgress;
  comm->clique->splitting[comm->rank] = {color, key, out};
  current->finish_split(*comm->clique);
  return current->busy(comm);
}

ncclResult_t comm_finalize(ncclComm_t comm) {
  const Guard guard(current->mutex);
  if (!current->knows(comm, "finalize")) return ncclInvalidArgument;
  if (comm->state != ncclSuccess) return ncclInvalidUsage;
  Clique& clique = *comm->clique;
  comm->state = ncclInProgress;
  clique.finalized.insert(comm->rank);
  if (clique.finalized.size() == clique.comms.size()) current->become(clique, ncclSuccess);
  return current->busy(comm);
}

ncclResult_t comm_destroy(ncclComm_t comm) {
  const Guard guard(current->mutex);
  if (!current->knows(comm, "destroy")) return ncclInvalidArgument;
  if (!comm->clique->finalized.contains(comm->rank) || comm->state != ncclSuccess) {
    current->violations.emplace_back("destroy before the end of finalize");
  }
  // Its rank stays finalized: the others need not hurry.
  current->remove(comm);
  return ncclSuccess;
}

ncclResult_t comm_abort(ncclComm_t comm) {
  const Guard guard(current->mutex);
  if (!current->knows(comm, "abort")) return ncclInvalidArgument;
  ++current->aborted;
  current->remove(comm);
  return ncclSuccess;
}

ncclResult_t comm_get_async_error(ncclComm_t comm, ncclResult_t* error) {
  const Guard guard(current->mutex);
  if (!current->knows(comm, "poll")) return ncclInvalidArgument;
  if (comm->polls_left > 0 && --comm->polls_left == 0) current->put_on_stream(comm);
  *error = comm->polls_left > 0 ? ncclInProgress : comm->state;
  return ncclSuccess;
}

const char* get_error_string(ncclResult_t result) {
  if (result == ncclInvalidArgument) return "invalid argument";
  if (result == ncclInvalidUsage) return "invalid usage";
  if (result == ncclRemoteError) return "remote process exited or there was a network error";
  return "another error";
}

const char* get_last_error(ncclComm_t) { return ""; }

ncclResult_t group_start() {
  ++open_group.depth;
  return ncclSuccess;
}

ncclResult_t group_end() {
  if (open_group.depth == 0) return ncclInvalidUsage;
  if (--open_group.depth > 0) return ncclSuccess;
  OpenGroup group = std::move(open_group);
  open_group = {};
  if (group.problem != ncclSuccess) return group.problem;
  const Guard guard(current->mutex);
  std::map<std::pair<ncclComm*, cudaStream_t>, std::unique_ptr<Kernel>> kernels;
  std::set<ncclComm*> comms;
  for (const Operation& o : group.operations) {
    if (!current->knows(o.comm, "group end")) return ncclInvalidArgument;
    // Operations of several communicators on one stream wait for each other like one kernel.
    std::unique_ptr<Kernel>& kernel = kernels[{group.operations.front().comm, o.stream}];
    if (kernel == nullptr) kernel = std::make_unique<Kernel>();
    kernel->operations.push_back(o);
    comms.insert(o.comm);
  }
  for (auto& [key, kernel] : kernels) key.first->behind.emplace_back(key.second, std::move(kernel));
  ncclResult_t result = ncclSuccess;
  for (ncclComm* comm : comms) {
    if (current->busy(comm) == ncclInProgress) result = ncclInProgress;
    if (current->polls == 0) current->put_on_stream(comm);
  }
  return result;
}

ncclResult_t issue(const Operation& o) {
  group_start();
  {
    const Guard guard(current->mutex);
    const auto wrong = [&]() -> ncclResult_t {
      if (!current->knows(o.comm, "use")) return ncclInvalidArgument;
      if (const auto refused = current->refuse_next.find(o.comm->world_rank);
          refused != current->refuse_next.end()) {
        const ncclResult_t error = refused->second;
        current->refuse_next.erase(refused);
        return error;
      }
      const auto size = static_cast<int>(o.comm->clique->comms.size());
      if (o.other < 0 || o.other >= size || o.stream == nullptr) return ncclInvalidArgument;
      if ((o.in == nullptr && o.verb != Verb::kReceive) ||
          (o.out == nullptr && o.verb != Verb::kSend)) {
        return ncclInvalidArgument;
      }
      // As in NCCL: no call before the last one is out of progress.
      if (o.comm->state != ncclSuccess || o.comm->polls_left > 0) return ncclInvalidArgument;
      return ncclSuccess;
    }();
    if (wrong != ncclSuccess && open_group.problem == ncclSuccess) open_group.problem = wrong;
  }
  open_group.operations.push_back(o);
  const ncclResult_t problem = open_group.problem;
  const ncclResult_t ended = group_end();
  return problem != ncclSuccess ? problem : ended;
}

ncclResult_t send(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return issue({Verb::kSend, in, nullptr, count, type, peer, comm, stream});
}
ncclResult_t receive(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
  return issue({Verb::kReceive, nullptr, out, count, type, peer, comm, stream});
}
ncclResult_t all_gather(const void* in, void* out, std::size_t count, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream) {
  return issue({Verb::kAllGather, in, out, count, type, 0, comm, stream});
}
ncclResult_t reduce_scatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                            ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return issue({Verb::kReduceScatter, in, out, count, type, 0, comm, stream});
}
ncclResult_t all_reduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return issue({Verb::kAllReduce, in, out, count, type, 0, comm, stream});
}
ncclResult_t broadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return issue({Verb::kBroadcast, in, out, count, type, root, comm, stream});
}

cudaError_t set_device(int) { return cudaSuccess; }

cudaError_t stream_query(cudaStream_t stream) {
  const Guard guard(current->mutex);
  if (stream->broken != cudaSuccess) return stream->broken;
  current->advance();
  return stream->kernels.empty() ? cudaSuccess : cudaErrorNotReady;
}

const char* cuda_error_string(cudaError_t) { return "the device is gone"; }

}  // namespace

NcclStandIn::NcclStandIn() : api_(std::make_unique<NcclApi>()) {
  current = new StandInState;
  open_group = {};
  *api_ = {.get_version = get_version,
           .get_unique_id = get_unique_id,
           .comm_init_rank_config = comm_init,
           .comm_split = comm_split,
           .comm_finalize = comm_finalize,
           .comm_destroy = comm_destroy,
           .comm_abort = comm_abort,
           .comm_get_async_error = comm_get_async_error,
           .get_error_string = get_error_string,
           .get_last_error = get_last_error,
           .group_start = group_start,
           .group_end = group_end,
           .send = send,
           .recv = receive,
           .all_gather = all_gather,
           .reduce_scatter = reduce_scatter,
           .all_reduce = all_reduce,
           .broadcast = broadcast,
           .set_device = set_device,
           .stream_query = stream_query,
           .cuda_error_string = cuda_error_string};
}

NcclStandIn::~NcclStandIn() {
  delete current;
  current = nullptr;
}

const NcclApi& NcclStandIn::api() const { return *api_; }

cudaStream_t NcclStandIn::make_stream() {
  const Guard guard(current->mutex);
  current->streams.push_back(std::make_unique<CUstream_st>());
  return current->streams.back().get();
}

void NcclStandIn::set_polls(int polls) {
  const Guard guard(current->mutex);
  current->polls = polls;
}

void NcclStandIn::fail_later(int rank, ncclResult_t error) {
  const Guard guard(current->mutex);
  current->fail_later[rank] = error;
}

void NcclStandIn::refuse_next(int rank, ncclResult_t error) {
  const Guard guard(current->mutex);
  current->refuse_next[rank] = error;
}

void NcclStandIn::break_stream(cudaStream_t stream, cudaError_t error) {
  const Guard guard(current->mutex);
  stream->broken = error;
}

int NcclStandIn::alive() const {
  const Guard guard(current->mutex);
  return static_cast<int>(current->alive.size());
}

int NcclStandIn::aborted() const {
  const Guard guard(current->mutex);
  return current->aborted;
}

int NcclStandIn::splits() const {
  const Guard guard(current->mutex);
  return current->splits;
}

std::vector<std::string> NcclStandIn::violations() const {
  const Guard guard(current->mutex);
  return current->violations;
}

void NcclStandIn::forget_violations() {
  const Guard guard(current->mutex);
  current->violations.clear();
}

}  // namespace bayplan::exec::test
