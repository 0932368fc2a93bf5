// Communicator that moves nothing and remembers every call: byte accounting and conformance tests.
// With an inner communicator it also forwards, so that ranks really meet.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "executor/comm/communicator.h"
#include "executor/comm/wire_counter.h"

namespace bayplan::exec {

struct RecordedCall {
  enum class Kind : std::uint8_t { kExchange, kCollective, kBarrier } kind{};
  InstructionKind collective{};  // of collectives
  Purpose purpose = Purpose::kNone;
  std::vector<int> members;       // of collectives
  std::int64_t bytes = 0;         // of collectives: the whole payload
  std::vector<Message> messages;  // of exchanges, without data
};

class RecordingCommunicator final : public Communicator {
 public:
  RecordingCommunicator(int rank, int world_size, Communicator* inner = nullptr)
      : rank_(rank), world_size_(world_size), inner_(inner) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
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
  std::vector<WireCount> wire() const override { return wire_.counts(); }
  int awaiting() const noexcept override { return inner_ == nullptr ? -1 : inner_->awaiting(); }

  /// Calls so far, in order.
  std::vector<RecordedCall> calls() const;

 private:
  void record(RecordedCall call);
  void record_collective(InstructionKind kind, const CallSite& site, std::span<const int> members,
                         std::int64_t bytes);

  int rank_;
  int world_size_;
  Communicator* inner_;
  WireCounter wire_;
  mutable std::mutex mutex_;
  std::vector<RecordedCall> calls_;
};

}  // namespace bayplan::exec
