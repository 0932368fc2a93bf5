// Offsets and waits, in one walk over the issue order. An instruction waits for the writers of
// what it reads and the users of what it writes, when they are on other streams and not already
// ordered before it. A transient buffer gets bytes at its first write and gives them back at its
// release; bytes are reused only by instructions that are ordered behind that release.
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "planner/core/check.h"
#include "planner/program/lowering.h"

namespace bayplan {
namespace {

/// Per stream, the last instruction known to be done; -1 = none.
using Clock = std::array<std::int32_t, kStreamCount>;

constexpr Clock empty_clock() {
  Clock c{};
  c.fill(-1);
  return c;
}

void advance(Clock& to, const Clock& from) {
  for (std::size_t s = 0; s < to.size(); ++s) to[s] = std::max(to[s], from[s]);
}

/// A gap in the arena and the release that it became free by; release -1 = always free.
struct FreeBlock {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  Stream stream = Stream::kCompute;
  std::int32_t release = -1;
};

/// Whether an instruction on stream `own` with clock `known` is ordered behind the block's release.
bool usable(const FreeBlock& block, const Clock& known, Stream own) {
  return block.stream == own || known[static_cast<std::size_t>(block.stream)] >= block.release;
}

/// Best-fit allocator over [base, ∞) that knows since when each gap is free.
class TierPlanner {
 public:
  /// Blocks that another stream released and nothing has waited for yet are left alone until this
  /// many of a sufficient size have gathered: double buffering between streams instead of a wait.
  static constexpr int kPatience = 2;

  explicit TierPlanner(std::int64_t base) : end_(base), extent_(base) {}

  std::int64_t extent() const { return extent_; }

  /// Offset for `bytes`. `known` is the writer's clock; `needed` receives releases that it must
  /// wait for in addition.
  std::int64_t take(std::int64_t bytes, const Clock& known, Stream own, Clock& needed) {
    // Sizes recur: a block of just this size leaves others whole.
    const std::size_t exact = waiting_block(bytes, true, own, &known);
    if (exact != kNone) return take_waiting(exact, bytes, known, own, needed);
    if (const std::size_t run = best_run(bytes, known, own); run != kNone) return carve(run, bytes);
    const std::size_t other = waiting_block(bytes, false, own, nullptr);
    if (other != kNone) return take_waiting(other, bytes, known, own, needed);
    return grow(bytes, known, own);
  }

  void give_back(std::int64_t offset, std::int64_t bytes, Stream stream, std::int32_t release) {
    const FreeBlock block{offset, bytes, stream, release};
    const auto at =
        std::lower_bound(free_.begin(), free_.end(), offset,
                         [](const FreeBlock& b, std::int64_t o) { return b.offset < o; });
    free_.insert(at, block);
  }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  /// A block of at least, or exactly, `bytes`: one that `known` is ordered behind, else the oldest
  /// of enough waiting ones. kNone when there is none.
  std::size_t waiting_block(std::int64_t bytes, bool exactly, Stream own,
                            const Clock* known) const {
    int waiting = 0;
    std::size_t best = kNone;
    for (std::size_t i = 0; i < free_.size(); ++i) {
      const FreeBlock& block = free_[i];
      if (exactly ? block.bytes != bytes : block.bytes < bytes) continue;
      if (known != nullptr && usable(block, *known, own)) return i;
      ++waiting;
      if (best == kNone || block.bytes < free_[best].bytes ||
          (block.bytes == free_[best].bytes && block.release < free_[best].release)) {
        best = i;
      }
    }
    // Gathers and transfers between tiers are issued ahead of their use: waiting for the compute
    // before that use costs them nothing.
    const bool ahead = own == Stream::kGather || own == Stream::kH2d || own == Stream::kD2h;
    const int patience = ahead ? 1 : kPatience;
    return waiting >= patience ? best : kNone;
  }

  std::int64_t take_waiting(std::size_t block, std::int64_t bytes, const Clock& known, Stream own,
                            Clock& needed) {
    if (!usable(free_[block], known, own)) {
      std::int32_t& wait = needed[static_cast<std::size_t>(free_[block].stream)];
      wait = std::max(wait, free_[block].release);
    }
    return carve(block, bytes);
  }

  /// First block of the smallest run of adjacent usable blocks that holds `bytes`.
  std::size_t best_run(std::int64_t bytes, const Clock& known, Stream own) const {
    std::size_t best = kNone;
    std::int64_t best_bytes = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < free_.size();) {
      if (!usable(free_[i], known, own)) {
        ++i;
        continue;
      }
      const std::size_t first = i;
      std::int64_t total = 0;
      for (; i < free_.size() && usable(free_[i], known, own) &&
             free_[i].offset == free_[first].offset + total;
           ++i) {
        total += free_[i].bytes;
      }
      if (total >= bytes && total < best_bytes) {
        best = first;
        best_bytes = total;
      }
    }
    return best;
  }

  /// Takes `bytes` from the front of the run that starts at block `first`.
  std::int64_t carve(std::size_t first, std::int64_t bytes) {
    const std::int64_t offset = free_[first].offset;
    std::int64_t left = bytes;
    std::size_t i = first;
    while (left > 0) {
      FreeBlock& b = free_[i];
      const std::int64_t taken = std::min(left, b.bytes);
      b.offset += taken;
      b.bytes -= taken;
      left -= taken;
      if (b.bytes == 0) ++i;
    }
    free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(first),
                free_.begin() + static_cast<std::ptrdiff_t>(i));
    return offset;
  }

  /// Extends the arena, starting in the usable gap at its end if there is one.
  std::int64_t grow(std::int64_t bytes, const Clock& known, Stream own) {
    std::int64_t offset = end_;
    while (!free_.empty() && free_.back().offset + free_.back().bytes == offset &&
           usable(free_.back(), known, own)) {
      offset = free_.back().offset;
      free_.pop_back();
    }
    end_ = std::max(end_, offset + bytes);
    if (offset + bytes < end_)
      free_.push_back({offset + bytes, end_ - offset - bytes, Stream::kCompute, -1});
    extent_ = std::max(extent_, end_);
    return offset;
  }

  std::vector<FreeBlock> free_;  // by offset
  std::int64_t end_;
  std::int64_t extent_;
};

/// Who used a buffer since its last write.
struct BufferUses {
  std::int32_t write = -1;
  Clock reads = empty_clock();
};

class ListPlanner {
 public:
  ListPlanner(RankClass& c, Draft& draft, const std::array<std::int64_t, kTierCount>& base)
      : class_(c), draft_(draft), uses_(c.buffers.size()) {
    for (std::int64_t b : base) tiers_.emplace_back(b);
  }

  InstructionList plan() {
    const std::vector<Instruction>& drafts = draft_.list.instructions;
    clocks_.resize(drafts.size());
    result_.instructions.reserve(drafts.size());
    result_.accesses.reserve(draft_.list.accesses.size());
    for (std::size_t i = 0; i < drafts.size(); ++i)
      plan_instruction(static_cast<std::int32_t>(i), drafts[i]);
    return std::move(result_);
  }

  std::int64_t extent(std::size_t tier) const { return tiers_[tier].extent(); }

 private:
  void plan_instruction(std::int32_t index, const Instruction& draft) {
    const auto own = static_cast<std::size_t>(draft.stream);
    Clock known = empty_clock();
    if (last_on_stream_[own] >= 0) {
      known = clocks_[static_cast<std::size_t>(last_on_stream_[own])];
      known[own] = last_on_stream_[own];
    }
    Clock needed = empty_clock();
    for (std::int32_t a = draft.accesses.begin; a < draft.accesses.end; ++a) {
      const Access& access = draft_.list.accesses[static_cast<std::size_t>(a)];
      const BufferUses& uses = uses_[access.buffer.index()];
      require(needed, uses.write);
      if (access.mode != AccessMode::kRead) advance(needed, uses.reads);
    }
    if (draft.kind == InstructionKind::kEndStep) advance(needed, last_on_stream_);
    Clock before_allocation = known;
    wait_for(needed, own, before_allocation);
    for (std::int32_t a = draft.accesses.begin; a < draft.accesses.end; ++a) {
      Buffer& b = class_.buffers[draft_.list.accesses[static_cast<std::size_t>(a)].buffer.index()];
      if (b.offset >= 0) continue;
      const std::int64_t bytes = round_up(b.bytes, kTensorAlignment);
      b.offset = tiers_[static_cast<std::size_t>(b.tier)].take(bytes, before_allocation,
                                                               draft.stream, needed);
    }
    emit(index, draft, own, needed, known);
    if (draft.kind == InstructionKind::kRelease) give_back(index, draft);
  }

  void require(Clock& needed, std::int32_t instruction) const {
    if (instruction < 0) return;
    const auto s = static_cast<std::size_t>(
        result_.instructions[static_cast<std::size_t>(instruction)].stream);
    needed[s] = std::max(needed[s], instruction);
  }

  /// Adds to `known` what waiting for `needed` implies.
  void wait_for(const Clock& needed, std::size_t own, Clock& known) const {
    for (std::size_t s = 0; s < needed.size(); ++s) {
      if (s == own || needed[s] < 0 || known[s] >= needed[s]) continue;
      advance(known, clocks_[static_cast<std::size_t>(needed[s])]);
      known[s] = std::max(known[s], needed[s]);
    }
  }

  void emit(std::int32_t index, const Instruction& draft, std::size_t own, const Clock& needed,
            Clock known) {
    Instruction instruction = draft;
    instruction.waits.begin = static_cast<std::int32_t>(result_.waits.size());
    // Latest first: waiting for a late instruction usually implies the earlier ones.
    for (;;) {
      std::int32_t latest = -1;
      for (std::size_t s = 0; s < needed.size(); ++s) {
        if (s != own && needed[s] > known[s]) latest = std::max(latest, needed[s]);
      }
      if (latest < 0) break;
      const auto w = static_cast<std::size_t>(latest);
      const auto s = static_cast<std::size_t>(result_.instructions[w].stream);
      result_.waits.push_back(InstructionId(latest));
      advance(known, clocks_[w]);
      known[s] = std::max(known[s], latest);
    }
    instruction.waits.end = static_cast<std::int32_t>(result_.waits.size());
    instruction.accesses.begin = static_cast<std::int32_t>(result_.accesses.size());
    for (std::int32_t a = draft.accesses.begin; a < draft.accesses.end; ++a) {
      const Access& access = draft_.list.accesses[static_cast<std::size_t>(a)];
      result_.accesses.push_back(access);
      BufferUses& uses = uses_[access.buffer.index()];
      if (access.mode == AccessMode::kRead) {
        uses.reads[own] = index;
      } else {
        uses.write = index;
        uses.reads = empty_clock();
      }
    }
    instruction.accesses.end = static_cast<std::int32_t>(result_.accesses.size());
    clocks_[static_cast<std::size_t>(index)] = known;
    last_on_stream_[own] = index;
    result_.instructions.push_back(instruction);
  }

  void give_back(std::int32_t index, const Instruction& draft) {
    for (std::int32_t a = draft.accesses.begin; a < draft.accesses.end; ++a) {
      const Buffer& b =
          class_.buffers[draft_.list.accesses[static_cast<std::size_t>(a)].buffer.index()];
      tiers_[static_cast<std::size_t>(b.tier)].give_back(
          b.offset, round_up(b.bytes, kTensorAlignment), draft.stream, index);
    }
  }

  RankClass& class_;
  Draft& draft_;
  InstructionList result_;
  std::vector<BufferUses> uses_;
  std::vector<Clock> clocks_;
  Clock last_on_stream_ = empty_clock();
  std::vector<TierPlanner> tiers_;
};

}  // namespace

void pass_memory(Lowering&, ClassDraft& c) {
  std::array<std::int64_t, kTierCount> base{};
  for (Buffer& b : c.result.buffers) {
    if (!b.persistent) continue;
    std::int64_t& at = base[static_cast<std::size_t>(b.tier)];
    b.offset = at;
    at += round_up(b.bytes, kTensorAlignment);
  }
  c.result.arena_bytes = base;
  for (std::size_t k = 0; k < c.drafts.size(); ++k) {
    ListPlanner planner(c.result, c.drafts[k], base);
    c.result.programs[k] = planner.plan();
    c.result.peak_bytes[k] = planner.extent(0);
    for (std::size_t t = 0; t < kTierCount; ++t) {
      c.result.arena_bytes[t] = std::max(c.result.arena_bytes[t], planner.extent(t));
    }
  }
  for (const Buffer& b : c.result.buffers)
    BAYPLAN_CHECK(b.offset >= 0, "a buffer that no program uses");
}

}  // namespace bayplan
