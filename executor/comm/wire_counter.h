// Bytes that one rank sent, per (collective, purpose). Every communicator counts through this, by
// the definitions of sent_bytes() in planner/program/program.h.
#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "executor/comm/communicator.h"

namespace bayplan::exec {

class WireCounter {
 public:
  void add(InstructionKind collective, Purpose purpose, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    counts_[{collective, purpose}] += bytes;
  }
  void add_sends(std::span<const Message> messages) {
    for (const Message& m : messages) {
      if (m.is_send) add(m.kind, m.purpose, m.bytes);
    }
  }
  /// reduce_scatter sends all shards but its own; all_gather its own to all others.
  void add_shards(InstructionKind collective, Purpose purpose, std::size_t members,
                  std::int64_t shard_bytes) {
    add(collective, purpose, shard_bytes * (static_cast<std::int64_t>(members) - 1));
  }
  /// Both halves of an all_reduce, of which this rank owns `own_bytes`.
  void add_all_reduce(Purpose purpose, std::size_t members, std::int64_t bytes,
                      std::int64_t own_bytes) {
    add(InstructionKind::kAllReduce, purpose,
        bytes - own_bytes + own_bytes * (static_cast<std::int64_t>(members) - 1));
  }
  std::vector<WireCount> counts() const {
    const std::lock_guard lock(mutex_);
    std::vector<WireCount> out;
    for (const auto& [key, bytes] : counts_) out.push_back({key.first, key.second, bytes});
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<InstructionKind, Purpose>, std::int64_t> counts_;
};

}  // namespace bayplan::exec
