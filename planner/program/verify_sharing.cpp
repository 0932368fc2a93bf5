// Arena bytes: two buffers may share them only if the release of one happens before the first use
// of the other; persistent buffers share with nobody. And the arena is as large as declared, and
// no larger than the machine's.
#include <algorithm>
#include <map>
#include <optional>

#include "planner/program/verify_internal.h"

namespace bayplan::verification {
namespace {

ByteInterval extent(const Buffer& b) {
  return {b.offset, b.offset + round_up(b.bytes, kTensorAlignment)};
}

/// Who had which bytes last. Buffers come in the order of their first use, so it is enough to
/// order each against the last owners of its bytes: an owner's uses precede its release
/// (verify_hazards.cpp), hence everything before the last owner is ordered with it.
class Owners {
 public:
  /// Calls check(owner) for every last owner of some of the bytes, then gives them to `buffer`.
  template <class Check>
  void take(ByteInterval bytes, std::int32_t buffer, Check check) {
    auto it = pieces_.upper_bound(bytes.begin);
    if (it != pieces_.begin() && std::prev(it)->second.end > bytes.begin) --it;
    while (it != pieces_.end() && it->first < bytes.end) {
      const std::int64_t begin = it->first;
      const Piece piece = it->second;
      check(piece.buffer);
      it = pieces_.erase(it);
      if (begin < bytes.begin) pieces_.insert({begin, {bytes.begin, piece.buffer}});
      if (piece.end > bytes.end) it = pieces_.insert({bytes.end, {piece.end, piece.buffer}}).first;
    }
    pieces_.insert({bytes.begin, {bytes.end, buffer}});
  }

 private:
  struct Piece {
    std::int64_t end = 0;
    std::int32_t buffer = 0;
  };
  std::map<std::int64_t, Piece> pieces_;  // by begin
};

struct Life {
  std::int32_t first_use = -1;
  std::array<std::int32_t, kStreamCount> first_on_stream{};
  std::int32_t release = -1;
};

std::vector<Life> lives_of(const ClassProgram& p) {
  std::vector<Life> lives(p.rank_class.buffers.size());
  for (Life& l : lives) l.first_on_stream.fill(-1);
  for (std::int32_t i = 0; i < p.size(); ++i) {
    const Instruction& instruction = p.at(i);
    for (std::int32_t a = instruction.accesses.begin; a < instruction.accesses.end; ++a) {
      Life& life = lives[p.access(a).buffer.index()];
      if (instruction.kind == InstructionKind::kRelease) {
        if (life.release < 0) life.release = i;
        continue;
      }
      if (life.first_use < 0) life.first_use = i;
      std::int32_t& first = life.first_on_stream[static_cast<std::size_t>(instruction.stream)];
      if (first < 0) first = i;
    }
  }
  return lives;
}

}  // namespace

void check_sharing(const ClassProgram& p, const HappensBefore& order, Findings& findings) {
  const std::vector<Buffer>& buffers = p.rank_class.buffers;
  const std::vector<Life> lives = lives_of(p);
  std::vector<std::size_t> by_first_use;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].persistent || lives[b].first_use >= 0) by_first_use.push_back(b);
  }
  std::stable_sort(by_first_use.begin(), by_first_use.end(), [&](std::size_t a, std::size_t b) {
    if (buffers[a].persistent != buffers[b].persistent) return buffers[a].persistent;
    return !buffers[a].persistent && lives[a].first_use < lives[b].first_use;
  });
  std::array<Owners, kTierCount> owners;
  for (std::size_t b : by_first_use) {
    const auto conflict = [&](std::int32_t owner, const std::string& why) {
      findings.add(Violation::kOverlap, p.kind, p.rank, InstructionId(lives[b].first_use),
                   describe(p.rank_class, BufferId(b)) + " shares bytes with " +
                       describe(p.rank_class, BufferId(owner)) + ", " + why);
    };
    owners[static_cast<std::size_t>(buffers[b].tier)].take(
        extent(buffers[b]), static_cast<std::int32_t>(b), [&](std::int32_t owner) {
          const auto o = static_cast<std::size_t>(owner);
          if (buffers[o].persistent) return conflict(owner, "which is persistent");
          if (lives[o].release < 0) return conflict(owner, "which is never released");
          for (std::int32_t first : lives[b].first_on_stream) {
            if (first < 0 || order.before(lives[o].release, first)) continue;
            return conflict(owner, "and " + describe(p.list, first) +
                                       " uses it without waiting for " +
                                       describe(p.list, lives[o].release));
          }
        });
  }
}

void check_budget(const RankClass& rank_class, int rank, const VerifyOptions& options,
                  Findings& findings) {
  const auto bad = [&](ProgramKind kind, const std::string& what) {
    findings.add(Violation::kBudget, kind, rank, {}, what);
  };
  for (std::size_t t = 0; t < kTierCount; ++t) {
    const std::string tier(tier_name(static_cast<Tier>(t)));
    const std::int64_t declared = rank_class.arena_bytes[t];
    for (std::size_t b = 0; b < rank_class.buffers.size(); ++b) {
      const Buffer& buffer = rank_class.buffers[b];
      if (static_cast<std::size_t>(buffer.tier) == t && extent(buffer).end > declared) {
        bad(ProgramKind::kTrainStep, describe(rank_class, BufferId(b)) + " ends at " +
                                         std::to_string(extent(buffer).end) +
                                         ", behind the declared " + tier + " arena of " +
                                         std::to_string(declared) + " bytes");
      }
    }
    if (options.capacity[t] && declared > *options.capacity[t]) {
      bad(ProgramKind::kTrainStep, "the " + tier + " arena of " + std::to_string(declared) +
                                       " bytes is above the capacity of " +
                                       std::to_string(*options.capacity[t]));
    }
  }
  for (std::size_t k = 0; k < kProgramKindCount; ++k) {
    const InstructionList& list = rank_class.programs[k];
    std::int64_t peak = 0;
    for (const Buffer& b : rank_class.buffers) {
      if (b.persistent && b.tier == Tier::kDevice) peak = std::max(peak, extent(b).end);
    }
    for (const Instruction& i : list.instructions) {
      for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
        const Buffer& b =
            rank_class.buffers[list.accesses[static_cast<std::size_t>(a)].buffer.index()];
        if (b.tier == Tier::kDevice) peak = std::max(peak, extent(b).end);
      }
    }
    if (peak > rank_class.peak_bytes[k]) {
      bad(static_cast<ProgramKind>(k), "the buffers reach " + std::to_string(peak) +
                                           " device bytes, the declared peak is " +
                                           std::to_string(rank_class.peak_bytes[k]));
    }
  }
}

}  // namespace bayplan::verification
