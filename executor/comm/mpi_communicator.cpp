#include "executor/comm/mpi_communicator.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "executor/comm/mpi_transfer.h"
#include "executor/comm/rank_sum.h"
#include "executor/comm/wire_counter.h"
#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// Contributions of the other members are staged in pieces of at most this many bytes each.
constexpr std::int64_t kStagingBytes = std::int64_t{4} << 20;
constexpr int kCollectiveTag = 0;
/// MPI_Abort that hangs is cut off after this many seconds.
constexpr unsigned kAbortSeconds = 10;

std::uint64_t hash_of(std::span<const int> members) {
  std::uint64_t h = 1;
  for (const int m : members) {
    h = (h ^ static_cast<std::uint64_t>(m)) * 0x9E3779B97F4A7C15ull;
    h ^= h >> 31;
  }
  return h;
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(double deadline_seconds) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size_);
    for (MPI_Comm* comm : {&messages_, &collectives_}) {
      MPI_Comm_dup(MPI_COMM_WORLD, comm);
      MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    }
    int* bound = nullptr;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
    if (found != 0) tag_bound_ = *bound;
    limits_ = {rank_, deadline_seconds, &awaiting_};
  }
  ~MpiCommunicator() override {
    for (MPI_Comm* comm : {&messages_, &collectives_}) MPI_Comm_free(comm);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  int awaiting() const noexcept override { return awaiting_.load(std::memory_order_relaxed); }
  Clock::time_point matched_at() const override { return matched_at_; }
  std::vector<WireCount> wire() const override { return wire_.counts(); }

  void exchange(const CallSite& site, std::span<const Message> messages) override {
    std::vector<Transfer> transfers;
    for (const Message& m : messages) {
      BAYPLAN_CHECK(m.peer >= 0 && m.peer < world_size_ && m.peer != rank_, "peer out of range");
      BAYPLAN_CHECK(m.tag >= 0 && m.tag <= tag_bound_, "tag is larger than MPI allows");
      transfers.push_back({m.is_send,
                           m.peer,
                           m.tag,
                           m.data,
                           {.bytes = m.bytes,
                            .kind = static_cast<std::int32_t>(sending_kind(m.kind)),
                            .purpose = static_cast<std::int32_t>(m.purpose)}});
    }
    matched_at_ = run_transfers(messages_, site, limits_, transfers);
    wire_.add_sends(messages);
  }

  void all_gather(const CallSite& site, std::span<const int> members, std::byte* data,
                  std::int64_t shard_bytes) override {
    const TransferHeader header =
        header_of(InstructionKind::kAllGather, site, members, shard_bytes);
    const std::size_t self = index_in(members);
    std::vector<Transfer> transfers;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i == self) continue;
      transfers.push_back(to(members[i], data + offset(self, shard_bytes), header));
      transfers.push_back(from(members[i], data + offset(i, shard_bytes), header));
    }
    matched_at_ = run_transfers(collectives_, site, limits_, transfers);
    wire_.add_shards(InstructionKind::kAllGather, site.purpose, members.size(), shard_bytes);
  }

  void reduce_scatter(const CallSite& site, std::span<const int> members, std::byte* data,
                      std::int64_t shard_elements, DType dtype) override {
    std::vector<ElementRange> shards;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto begin = static_cast<std::int64_t>(i) * shard_elements;
      shards.push_back({begin, begin + shard_elements});
    }
    matched_at_ = reduce(InstructionKind::kReduceScatter, site, members, data, shards, dtype);
    wire_.add_shards(InstructionKind::kReduceScatter, site.purpose, members.size(),
                     shard_elements * dtype_size(dtype));
  }

  void all_reduce(const CallSite& site, std::span<const int> members, std::byte* data,
                  std::int64_t elements, DType dtype) override {
    const std::int64_t size = dtype_size(dtype);
    const std::size_t self = index_in(members);
    std::vector<ElementRange> shards;
    for (std::size_t i = 0; i < members.size(); ++i) {
      shards.push_back(owned_elements(elements, i, members.size()));
    }
    const Clock::time_point matched =
        reduce(InstructionKind::kAllReduce, site, members, data, shards, dtype);
    std::vector<Transfer> transfers;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i == self) continue;
      const auto shard = [&](std::size_t k) {
        return header_of(InstructionKind::kAllReduce, site, members,
                         (shards[k].end - shards[k].begin) * size);
      };
      transfers.push_back(to(members[i], data + shards[self].begin * size, shard(self)));
      transfers.push_back(from(members[i], data + shards[i].begin * size, shard(i)));
    }
    run_transfers(collectives_, site, limits_, transfers);
    matched_at_ = matched;
    wire_.add_all_reduce(site.purpose, members.size(), elements * size,
                         (shards[self].end - shards[self].begin) * size);
  }

  void broadcast(const CallSite& site, std::span<const int> members, std::byte* data,
                 std::int64_t bytes, int root) override {
    const TransferHeader header = header_of(InstructionKind::kBroadcast, site, members, bytes);
    BAYPLAN_CHECK(root >= 0 && static_cast<std::size_t>(root) < members.size(),
                  "root out of range");
    const int sender = members[static_cast<std::size_t>(root)];
    std::vector<Transfer> transfers;
    if (sender != rank_) {
      transfers.push_back(from(sender, data, header));
    } else {
      for (const int m : members) {
        if (m != rank_) transfers.push_back(to(m, data, header));
      }
      wire_.add_shards(InstructionKind::kBroadcast, site.purpose, members.size(), bytes);
    }
    matched_at_ = run_transfers(collectives_, site, limits_, transfers);
  }

  /// Through rank 0, message by message: MPI's own barrier does not say who is missing.
  void barrier(const CallSite& site) override {
    const TransferHeader header = header_of(InstructionKind::kEndStep, site, {}, 0);
    for (const bool arriving : {true, false}) {
      std::vector<Transfer> transfers;
      if (rank_ != 0) {
        transfers.push_back(arriving ? to(0, nullptr, header) : from(0, nullptr, header));
      } else {
        for (int r = 1; r < world_size_; ++r) {
          transfers.push_back(arriving ? from(r, nullptr, header) : to(r, nullptr, header));
        }
      }
      matched_at_ = run_transfers(collectives_, site, limits_, transfers);
    }
  }

  void abort(const std::string& reason) noexcept override {
    static std::atomic<bool> aborting{false};
    if (aborting.exchange(true)) return;  // by another thread, which ends the process
    try {
      const std::string line = "bayplan: " + reason + "\n";
      [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
    } catch (...) {
      // Out of memory: the job ends without the line.
    }
    ::alarm(kAbortSeconds);
    MPI_Abort(MPI_COMM_WORLD, 1);
    ::_exit(1);
  }

 private:
  /// Both sides of a message name the sending kind.
  static InstructionKind sending_kind(InstructionKind kind) {
    if (kind == InstructionKind::kRecvActivation) return InstructionKind::kSendActivation;
    if (kind == InstructionKind::kRecvGradient) return InstructionKind::kSendGradient;
    return kind;
  }
  static std::ptrdiff_t offset(std::size_t shard, std::int64_t shard_bytes) {
    return static_cast<std::ptrdiff_t>(shard) * shard_bytes;
  }
  static TransferHeader header_of(InstructionKind kind, const CallSite& site,
                                  std::span<const int> members, std::int64_t bytes,
                                  DType dtype = DType::kUint8) {
    return {.bytes = bytes,
            .group = hash_of(members),
            .kind = static_cast<std::int32_t>(kind),
            .purpose = static_cast<std::int32_t>(site.purpose),
            .dtype = static_cast<std::int32_t>(dtype)};
  }
  static Transfer to(int peer, std::byte* data, const TransferHeader& header) {
    return {true, peer, kCollectiveTag, data, header};
  }
  static Transfer from(int peer, std::byte* data, const TransferHeader& header) {
    return {false, peer, kCollectiveTag, data, header};
  }
  std::size_t index_in(std::span<const int> members) const {
    const auto at = std::find(members.begin(), members.end(), rank_);
    BAYPLAN_CHECK(at != members.end(), "rank is not among the members");
    return static_cast<std::size_t>(at - members.begin());
  }

  /// Own shard = sum over members in rank order; piece by piece, each sent to its owner.
  Clock::time_point reduce(InstructionKind kind, const CallSite& site, std::span<const int> members,
                           std::byte* data, const std::vector<ElementRange>& shards, DType dtype) {
    const std::int64_t size = dtype_size(dtype);
    const std::int64_t piece = kStagingBytes / size;
    const std::size_t self = index_in(members);
    std::int64_t longest = 0;
    for (const ElementRange& s : shards) longest = std::max(longest, s.end - s.begin);
    const std::int64_t own = shards[self].end - shards[self].begin;
    staging_.resize((members.size() - 1) * static_cast<std::size_t>(std::min(piece, own) * size));
    Clock::time_point matched{};
    for (std::int64_t first = 0; first < longest || first == 0; first += piece) {
      const auto part = [&](std::size_t i) {
        const ElementRange& s = shards[i];
        return ElementRange{std::min(s.begin + first, s.end),
                            std::min(s.begin + first + piece, s.end)};
      };
      const ElementRange mine = part(self);
      const std::int64_t my_bytes = (mine.end - mine.begin) * size;
      std::vector<Transfer> transfers;
      std::vector<const std::byte*> inputs;
      std::byte* staged = staging_.data();
      for (std::size_t i = 0; i < members.size(); ++i) {
        if (i == self) {
          inputs.push_back(data + mine.begin * size);
          continue;
        }
        const ElementRange theirs = part(i);
        const std::int64_t bytes = (theirs.end - theirs.begin) * size;
        transfers.push_back(to(members[i], data + theirs.begin * size,
                               header_of(kind, site, members, bytes, dtype)));
        transfers.push_back(
            from(members[i], staged, header_of(kind, site, members, my_bytes, dtype)));
        inputs.push_back(staged);
        staged += my_bytes;
      }
      const Clock::time_point at = run_transfers(collectives_, site, limits_, transfers);
      if (first == 0) matched = at;
      sum_in_rank_order(data + mine.begin * size, inputs, mine.end - mine.begin, dtype);
    }
    return matched;
  }

  int rank_ = 0;
  int world_size_ = 1;
  int tag_bound_ = 32767;  // what every MPI allows
  MPI_Comm messages_ = MPI_COMM_NULL;
  MPI_Comm collectives_ = MPI_COMM_NULL;
  std::atomic<int> awaiting_{-1};
  TransferLimits limits_;
  Clock::time_point matched_at_{};
  std::vector<std::byte> staging_;
  WireCounter wire_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(double deadline_seconds) {
  return std::make_unique<MpiCommunicator>(deadline_seconds);
}

}  // namespace bayplan::exec
