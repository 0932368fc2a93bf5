#include "executor/comm/local.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <tuple>

#include "executor/comm/rank_sum.h"
#include "executor/comm/wire_counter.h"
#include "executor/error.h"
#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

/// A send that waits for, or is read by, its receiver.
struct Post {
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;
  Purpose purpose{};
  std::string instruction;
  bool taken = false;
  bool done = false;
  Clock::time_point matched_at;
};

/// What one member says about the collective that it entered; all must say the same.
struct Terms {
  InstructionKind kind{};
  Purpose purpose{};
  std::int64_t bytes = 0;
  DType dtype{};
  int root = 0;
  friend bool operator==(const Terms&, const Terms&) = default;
};

std::string text_of(const Terms& t) {
  return std::string(instruction_name(t.kind)) + " for " + std::string(purpose_name(t.purpose)) +
         " of " + std::to_string(t.bytes) + " bytes of " + std::string(dtype_name(t.dtype));
}

/// Meeting place of one set of members.
struct Meeting {
  struct Slot {
    std::byte* data = nullptr;
    Terms terms;
    std::uint64_t arrivals = 0;
  };
  std::vector<Slot> slots;
  std::uint64_t generation = 0;  // meetings completed
  std::size_t arrived = 0;
  std::size_t readers = 0;  // members that may read others' memory
  Clock::time_point matched_at;
};

/// What all ranks share. Everything is guarded by `mutex`.
struct World {
  explicit World(int size, const LocalOptions& o)
      : options(o), wake(static_cast<std::size_t>(size)) {}
  LocalOptions options;
  std::mutex mutex;
  std::vector<std::condition_variable> wake;  // per rank
  std::map<std::tuple<int, int, int>, std::deque<std::shared_ptr<Post>>> mailboxes;
  std::map<std::vector<int>, Meeting> meetings;
  std::optional<std::string> abort_reason;

  void wake_all() {
    for (std::condition_variable& w : wake) w.notify_all();
  }
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<World> world, int rank, int world_size)
      : world_(std::move(world)), rank_(rank), world_size_(world_size) {}

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
  int awaiting() const noexcept override { return awaiting_.load(std::memory_order_relaxed); }
  Clock::time_point matched_at() const override { return matched_at_; }

 private:
  struct Membership {
    Meeting* meeting = nullptr;
    std::vector<int> members;
    std::size_t self = 0;
  };

  Clock::time_point deadline() const {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(world_->options.deadline_seconds));
  }
  std::condition_variable& my_wake() { return world_->wake[static_cast<std::size_t>(rank_)]; }
  [[noreturn]] void fail(const CallSite& site, FailureKind kind, int awaited,
                         const std::string& cause);
  void check_abort(const CallSite& site);
  template <class Who>
  void wait(Lock& lock, const CallSite& site, Clock::time_point until, const Who& awaited,
            const std::string& what);
  bool take(Lock& lock, const CallSite& site, const Message& message);
  void withdraw(Lock& lock, std::span<const Message> messages,
                const std::vector<std::shared_ptr<Post>>& posts);

  Membership join(std::span<const int> members);
  void meet(Lock& lock, const CallSite& site, Membership& at, std::byte* data, const Terms& terms);
  void leave(Lock& lock, Membership& at);
  template <class Work>
  void collective(const CallSite& site, std::span<const int> members, std::byte* data,
                  const Terms& terms, Work work);
  void sum_slice(const Membership& at, ElementRange range, DType dtype);

  std::shared_ptr<World> world_;
  int rank_;
  int world_size_;
  WireCounter wire_;
  std::atomic<int> awaiting_{-1};
  Clock::time_point matched_at_{};
};

void LocalCommunicator::fail(const CallSite& site, FailureKind kind, int awaited,
                             const std::string& cause) {
  const ExecutorError error(rank_, site.step, std::string(site.instruction), cause, kind, awaited);
  // At once and under the lock: nobody may meet this rank any more, nor read its memory.
  if (!world_->abort_reason) {
    world_->abort_reason = describe(error);
    world_->wake_all();
  }
  throw error;
}

void LocalCommunicator::check_abort(const CallSite& site) {
  if (world_->abort_reason) fail(site, FailureKind::kAborted, -1, *world_->abort_reason);
}

/// `awaited()`: the rank that is missing, asked again at the deadline, since others may have come.
template <class Who>
void LocalCommunicator::wait(Lock& lock, const CallSite& site, Clock::time_point until,
                             const Who& awaited, const std::string& what) {
  check_abort(site);
  awaiting_.store(awaited(), std::memory_order_relaxed);
  const std::cv_status status = my_wake().wait_until(lock, until);
  check_abort(site);
  if (status == std::cv_status::timeout && Clock::now() >= until) {
    const int missing = awaited();
    // awaiting_ keeps the peer: whoever explains the failure follows it from rank to rank.
    awaiting_.store(missing, std::memory_order_relaxed);
    fail(site, FailureKind::kStalled, missing,
         "rank " + std::to_string(missing) + " did not " + what + " within " +
             std::to_string(world_->options.deadline_seconds) + " s");
  }
  awaiting_.store(-1, std::memory_order_relaxed);
}

bool LocalCommunicator::take(Lock& lock, const CallSite& site, const Message& message) {
  const auto it = world_->mailboxes.find({message.peer, rank_, message.tag});
  if (it == world_->mailboxes.end() || it->second.empty()) return false;
  const std::shared_ptr<Post> post = it->second.front();
  it->second.pop_front();
  if (post->bytes != message.bytes) {
    fail(site, FailureKind::kMismatch, message.peer,
         "rank " + std::to_string(rank_) + " expects " + std::to_string(message.bytes) +
             " bytes, rank " + std::to_string(message.peer) + " sends " +
             std::to_string(post->bytes) + " (" + post->instruction + ")");
  }
  post->taken = true;
  post->matched_at = Clock::now();
  matched_at_ = std::max(matched_at_, post->matched_at);
  if (message.data != nullptr && post->data != nullptr && message.bytes > 0) {
    lock.unlock();
    std::memcpy(message.data, post->data, static_cast<std::size_t>(message.bytes));
    lock.lock();
  }
  post->done = true;
  world_->wake[static_cast<std::size_t>(message.peer)].notify_all();
  return true;
}

void LocalCommunicator::withdraw(Lock& lock, std::span<const Message> messages,
                                 const std::vector<std::shared_ptr<Post>>& posts) {
  std::size_t next = 0;
  for (const Message& m : messages) {
    if (!m.is_send || next == posts.size()) continue;
    const std::shared_ptr<Post>& post = posts[next++];
    std::erase(world_->mailboxes[{rank_, m.peer, m.tag}], post);
    // A receiver that is copying holds on to our memory.
    my_wake().wait(lock, [&] { return !post->taken || post->done; });
  }
}

void LocalCommunicator::exchange(const CallSite& site, std::span<const Message> messages) {
  const Clock::time_point until = deadline();
  std::vector<std::shared_ptr<Post>> posts;
  std::vector<const Message*> receives;
  Lock lock(world_->mutex);
  matched_at_ = {};
  try {
    check_abort(site);
    for (const Message& m : messages) {
      BAYPLAN_CHECK(m.peer >= 0 && m.peer < world_size_ && m.peer != rank_, "peer out of range");
      if (!m.is_send) {
        receives.push_back(&m);
        continue;
      }
      posts.push_back(std::make_shared<Post>(
          Post{m.data, m.bytes, m.purpose, std::string(site.instruction), false, false, {}}));
      world_->mailboxes[{rank_, m.peer, m.tag}].push_back(posts.back());
      world_->wake[static_cast<std::size_t>(m.peer)].notify_all();
    }
    for (;;) {
      // In order, and each takes the oldest post, so equal (peer, tag) match first to first.
      const std::size_t before = receives.size();
      std::erase_if(receives, [&](const Message* m) { return take(lock, site, *m); });
      const auto unread = std::find_if(posts.begin(), posts.end(),
                                       [](const std::shared_ptr<Post>& p) { return !p->done; });
      if (receives.empty() && unread == posts.end()) break;
      if (receives.size() != before) continue;
      int awaited = -1;
      if (!receives.empty()) {
        awaited = receives.front()->peer;
      } else {
        std::size_t skip = static_cast<std::size_t>(unread - posts.begin());
        for (const Message& m : messages) {
          if (m.is_send && skip-- == 0) awaited = m.peer;
        }
      }
      wait(
          lock, site, until, [awaited] { return awaited; }, receives.empty() ? "receive" : "send");
    }
  } catch (...) {
    withdraw(lock, messages, posts);
    throw;
  }
  for (const std::shared_ptr<Post>& p : posts) matched_at_ = std::max(matched_at_, p->matched_at);
  wire_.add_sends(messages);
}

LocalCommunicator::Membership LocalCommunicator::join(std::span<const int> members) {
  Membership at;
  at.members.assign(members.begin(), members.end());
  const auto self = std::find(members.begin(), members.end(), rank_);
  BAYPLAN_CHECK(self != members.end(), "rank is not among the members");
  at.self = static_cast<std::size_t>(self - members.begin());
  at.meeting = &world_->meetings[at.members];
  at.meeting->slots.resize(members.size());
  return at;
}

void LocalCommunicator::meet(Lock& lock, const CallSite& site, Membership& at, std::byte* data,
                             const Terms& terms) {
  const Clock::time_point until = deadline();
  Meeting& meeting = *at.meeting;
  check_abort(site);
  Meeting::Slot& mine = meeting.slots[at.self];
  mine.data = data;
  mine.terms = terms;
  ++mine.arrivals;
  const std::uint64_t generation = meeting.generation;
  if (++meeting.arrived == meeting.slots.size()) {
    for (std::size_t i = 0; i < meeting.slots.size(); ++i) {
      if (meeting.slots[i].terms == terms) continue;
      fail(site, FailureKind::kMismatch, at.members[i],
           "rank " + std::to_string(rank_) + " calls " + text_of(terms) + ", rank " +
               std::to_string(at.members[i]) + " calls " + text_of(meeting.slots[i].terms));
    }
    meeting.arrived = 0;
    ++meeting.generation;
    meeting.readers = meeting.slots.size();
    meeting.matched_at = Clock::now();
    for (const int member : at.members) world_->wake[static_cast<std::size_t>(member)].notify_all();
  }
  try {
    while (meeting.generation == generation) {
      const auto missing = [&] {
        std::size_t m = 0;
        while (m + 1 < meeting.slots.size() && meeting.slots[m].arrivals == mine.arrivals) ++m;
        return at.members[m];
      };
      wait(lock, site, until, missing, "reach " + std::string(instruction_name(terms.kind)));
    }
  } catch (...) {
    if (meeting.generation != generation) leave(lock, at);
    throw;
  }
}

void LocalCommunicator::leave(Lock& lock, Membership& at) {
  Meeting& meeting = *at.meeting;
  if (--meeting.readers == 0) {
    for (const int member : at.members) world_->wake[static_cast<std::size_t>(member)].notify_all();
  }
  // No deadline: readers only copy and sum, and while they do they hold on to our memory.
  my_wake().wait(lock, [&] { return meeting.readers == 0; });
}

template <class Work>
void LocalCommunicator::collective(const CallSite& site, std::span<const int> members,
                                   std::byte* data, const Terms& terms, Work work) {
  matched_at_ = Clock::now();
  if (members.size() <= 1) return;
  Lock lock(world_->mutex);
  Membership at = join(members);
  meet(lock, site, at, data, terms);
  matched_at_ = at.meeting->matched_at;
  const bool dry = std::any_of(at.meeting->slots.begin(), at.meeting->slots.end(),
                               [](const Meeting::Slot& slot) { return slot.data == nullptr; });
  if (!dry && terms.bytes > 0) {
    lock.unlock();
    work(at);
    lock.lock();
  }
  leave(lock, at);
  check_abort(site);
}

void LocalCommunicator::sum_slice(const Membership& at, ElementRange range, DType dtype) {
  const std::int64_t begin = range.begin * dtype_size(dtype);
  std::vector<const std::byte*> inputs;
  for (const Meeting::Slot& slot : at.meeting->slots) inputs.push_back(slot.data + begin);
  sum_in_rank_order(at.meeting->slots[at.self].data + begin, inputs, range.end - range.begin,
                    dtype);
}

void LocalCommunicator::all_gather(const CallSite& site, std::span<const int> members,
                                   std::byte* data, std::int64_t shard_bytes) {
  const Terms terms{InstructionKind::kAllGather, site.purpose, shard_bytes, DType::kUint8, 0};
  collective(site, members, data, terms, [&](const Membership& at) {
    for (std::size_t i = 0; i < at.members.size(); ++i) {
      if (i == at.self) continue;
      const std::int64_t begin = static_cast<std::int64_t>(i) * shard_bytes;
      std::memcpy(data + begin, at.meeting->slots[i].data + begin,
                  static_cast<std::size_t>(shard_bytes));
    }
  });
  wire_.add_shards(terms.kind, site.purpose, members.size(), shard_bytes);
}

void LocalCommunicator::reduce_scatter(const CallSite& site, std::span<const int> members,
                                       std::byte* data, std::int64_t shard_elements, DType dtype) {
  const Terms terms{InstructionKind::kReduceScatter, site.purpose,
                    shard_elements * dtype_size(dtype), dtype, 0};
  collective(site, members, data, terms, [&](const Membership& at) {
    const std::int64_t begin = static_cast<std::int64_t>(at.self) * shard_elements;
    sum_slice(at, {begin, begin + shard_elements}, dtype);
  });
  wire_.add_shards(terms.kind, site.purpose, members.size(), terms.bytes);
}

void LocalCommunicator::all_reduce(const CallSite& site, std::span<const int> members,
                                   std::byte* data, std::int64_t elements, DType dtype) {
  const std::int64_t size = dtype_size(dtype);
  const Terms terms{InstructionKind::kAllReduce, site.purpose, elements * size, dtype, 0};
  collective(site, members, data, terms, [&](const Membership& at) {
    sum_slice(at, owned_elements(elements, at.self, at.members.size()), dtype);
  });
  const Clock::time_point matched = matched_at_;
  const Terms gather{InstructionKind::kAllReduce, site.purpose, elements * size, dtype, 1};
  collective(site, members, data, gather, [&](const Membership& at) {
    for (std::size_t i = 0; i < at.members.size(); ++i) {
      if (i == at.self) continue;
      const ElementRange range = owned_elements(elements, i, at.members.size());
      std::memcpy(data + range.begin * size, at.meeting->slots[i].data + range.begin * size,
                  static_cast<std::size_t>((range.end - range.begin) * size));
    }
  });
  matched_at_ = matched;
  const auto self =
      static_cast<std::size_t>(std::find(members.begin(), members.end(), rank_) - members.begin());
  const ElementRange own = owned_elements(elements, self, members.size());
  wire_.add_all_reduce(site.purpose, members.size(), elements * size, (own.end - own.begin) * size);
}

void LocalCommunicator::broadcast(const CallSite& site, std::span<const int> members,
                                  std::byte* data, std::int64_t bytes, int root) {
  const Terms terms{InstructionKind::kBroadcast, site.purpose, bytes, DType::kUint8, root};
  BAYPLAN_CHECK(root >= 0 && static_cast<std::size_t>(root) < members.size(), "root out of range");
  const bool sends = members[static_cast<std::size_t>(root)] == rank_;
  collective(site, members, data, terms, [&](const Membership& at) {
    if (sends) return;
    std::memcpy(data, at.meeting->slots[static_cast<std::size_t>(root)].data,
                static_cast<std::size_t>(bytes));
  });
  if (sends) wire_.add_shards(terms.kind, site.purpose, members.size(), bytes);
}

void LocalCommunicator::barrier(const CallSite& site) {
  std::vector<int> all(static_cast<std::size_t>(world_size_));
  std::iota(all.begin(), all.end(), 0);
  collective(site, all, nullptr, {InstructionKind::kEndStep, site.purpose, 0, DType::kUint8, 0},
             [](const Membership&) {});
}

void LocalCommunicator::abort(const std::string& reason) noexcept {
  try {
    const Lock lock(world_->mutex);
    if (!world_->abort_reason) world_->abort_reason = reason;
    world_->wake_all();
  } catch (...) {
    // Out of memory or a broken mutex: nothing more can be done, and the deadline remains.
  }
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(int world_size,
                                                                    const LocalOptions& options) {
  const auto world = std::make_shared<World>(world_size, options);
  std::vector<std::unique_ptr<Communicator>> out;
  out.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    out.push_back(std::make_unique<LocalCommunicator>(world, rank, world_size));
  }
  return out;
}

}  // namespace bayplan::exec
