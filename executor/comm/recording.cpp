#include "executor/comm/recording.h"

#include <algorithm>

#include "executor/comm/rank_sum.h"

namespace bayplan::exec {

void RecordingCommunicator::record(RecordedCall call) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(std::move(call));
}

std::vector<RecordedCall> RecordingCommunicator::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void RecordingCommunicator::record_collective(InstructionKind kind, const CallSite& site,
                                              std::span<const int> members, std::int64_t bytes) {
  record({RecordedCall::Kind::kCollective,
          kind,
          site.purpose,
          {members.begin(), members.end()},
          bytes,
          {}});
}

void RecordingCommunicator::exchange(const CallSite& site, std::span<const Message> messages) {
  RecordedCall call{RecordedCall::Kind::kExchange, {}, site.purpose, {}, 0, {}};
  for (Message m : messages) {
    m.data = nullptr;
    call.messages.push_back(m);
  }
  record(std::move(call));
  wire_.add_sends(messages);
  if (inner_ != nullptr) inner_->exchange(site, messages);
}

void RecordingCommunicator::all_gather(const CallSite& site, std::span<const int> members,
                                       std::byte* data, std::int64_t shard_bytes) {
  const auto n = static_cast<std::int64_t>(members.size());
  record_collective(InstructionKind::kAllGather, site, members, n * shard_bytes);
  wire_.add_shards(InstructionKind::kAllGather, site.purpose, members.size(), shard_bytes);
  if (inner_ != nullptr) inner_->all_gather(site, members, data, shard_bytes);
}

void RecordingCommunicator::reduce_scatter(const CallSite& site, std::span<const int> members,
                                           std::byte* data, std::int64_t shard_elements,
                                           DType dtype) {
  const auto n = static_cast<std::int64_t>(members.size());
  const std::int64_t shard_bytes = shard_elements * dtype_size(dtype);
  record_collective(InstructionKind::kReduceScatter, site, members, n * shard_bytes);
  wire_.add_shards(InstructionKind::kReduceScatter, site.purpose, members.size(), shard_bytes);
  if (inner_ != nullptr) inner_->reduce_scatter(site, members, data, shard_elements, dtype);
}

void RecordingCommunicator::all_reduce(const CallSite& site, std::span<const int> members,
                                       std::byte* data, std::int64_t elements, DType dtype) {
  const std::int64_t size = dtype_size(dtype);
  record_collective(InstructionKind::kAllReduce, site, members, elements * size);
  const auto self =
      static_cast<std::size_t>(std::find(members.begin(), members.end(), rank_) - members.begin());
  const ElementRange own = owned_elements(elements, self, members.size());
  wire_.add_all_reduce(site.purpose, members.size(), elements * size, (own.end - own.begin) * size);
  if (inner_ != nullptr) inner_->all_reduce(site, members, data, elements, dtype);
}

void RecordingCommunicator::broadcast(const CallSite& site, std::span<const int> members,
                                      std::byte* data, std::int64_t bytes, int root) {
  record_collective(InstructionKind::kBroadcast, site, members, bytes);
  if (members[static_cast<std::size_t>(root)] == rank_) {
    wire_.add_shards(InstructionKind::kBroadcast, site.purpose, members.size(), bytes);
  }
  if (inner_ != nullptr) inner_->broadcast(site, members, data, bytes, root);
}

void RecordingCommunicator::barrier(const CallSite& site) {
  record({RecordedCall::Kind::kBarrier, {}, site.purpose, {}, 0, {}});
  if (inner_ != nullptr) inner_->barrier(site);
}

void RecordingCommunicator::abort(const std::string& reason) noexcept {
  if (inner_ != nullptr) inner_->abort(reason);
}

}  // namespace bayplan::exec
