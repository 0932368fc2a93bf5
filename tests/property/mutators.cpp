#include "tests/property/mutators.h"

#include <array>
#include <functional>

#include "tests/property/editable_list.h"

namespace bayplan::test {
namespace {

using Entry = EditableList::Entry;

std::size_t below(std::mt19937_64& random, std::size_t n) {
  return static_cast<std::size_t>(random() % n);
}

/// One class and sub-program to break; mostly a training step. Sometimes a single rank gets a
/// class of its own, so that ranks that were alike no longer are.
struct Target {
  Mutant mutant;
  std::size_t rank_class = 0;
  EditableList list;

  Target(const Program& program, std::mt19937_64& random)
      : rank_class(below(random, program.classes.size())), list(InstructionList{}) {
    mutant.program = program;
    mutant.kind = below(random, 5) == 0 ? ProgramKind::kEvalStep : ProgramKind::kTrainStep;
    if (below(random, 3) == 0) {
      const std::size_t rank = below(random, program.rank_class.size());
      rank_class = program.classes.size();
      mutant.program.classes.push_back(program.class_of(static_cast<int>(rank)));
      mutant.program.rank_class[rank] = static_cast<std::int32_t>(rank_class);
    }
    list = EditableList(target_class().programs[static_cast<std::size_t>(mutant.kind)]);
  }
  RankClass& target_class() { return mutant.program.classes[rank_class]; }

  std::optional<std::size_t> pick(std::mt19937_64& random,
                                  const std::function<bool(const Entry&)>& which) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (which(list[i])) found.push_back(i);
    }
    if (found.empty()) return std::nullopt;
    return found[below(random, found.size())];
  }

  Mutant done(std::string what, bool keep_later = false) {
    target_class().programs[static_cast<std::size_t>(mutant.kind)] = list.build(keep_later);
    mutant.what = "class " + std::to_string(rank_class) + ": " + std::move(what);
    return std::move(mutant);
  }
};

std::string at(std::size_t i) { return "i" + std::to_string(i); }

std::optional<Mutant> drop_wait(const Program& program, std::mt19937_64& random) {
  Target t(program, random);
  const auto i = t.pick(random, [](const Entry& e) { return !e.waits.empty(); });
  if (!i) return std::nullopt;
  auto& waits = t.list[*i].waits;
  const std::size_t w = below(random, waits.size());
  const std::size_t id = waits[w];
  waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
  return t.done(at(*i) + " no longer waits for " + at(id));
}

/// Swaps neighbours in the list, or on a stream.
std::optional<Mutant> swap_order(const Program& program, std::mt19937_64& random) {
  Target t(program, random);
  if (t.list.size() < 2) return std::nullopt;
  const std::size_t i = below(random, t.list.size() - 1);
  std::size_t j = i + 1;
  if (below(random, 2) == 0) {
    while (j < t.list.size() && t.list[j].instruction.stream != t.list[i].instruction.stream) ++j;
    if (j == t.list.size()) return std::nullopt;
  }
  t.list.swap(i, j);
  return t.done(at(i) + " and " + at(j) + " change places");
}

std::optional<Mutant> change_size(const Program& program, std::mt19937_64& random) {
  Target t(program, random);
  const auto i = t.pick(random, [](const Entry& e) { return !e.accesses.empty(); });
  if (!i) return std::nullopt;
  auto& accesses = t.list[*i].accesses;
  Access& a = accesses[below(random, accesses.size())];
  const std::int64_t before = a.bytes;
  switch (below(random, 5)) {
    case 0:
      a.bytes /= 2;
      break;
    case 1:
      a.bytes -= std::min<std::int64_t>(a.bytes, 4);
      break;
    case 2:
      a.bytes += 8;
      break;
    case 3:
      a.bytes = 0;
      break;
    default:
      a.offset += 16;
      a.bytes -= std::min<std::int64_t>(a.bytes, 16);
      break;
  }
  return t.done(at(*i) + " touches " + std::to_string(a.bytes) + " bytes of b" +
                std::to_string(a.buffer.value) + ", not " + std::to_string(before));
}

/// Moves a release in front of the last use of what it releases, or further.
std::optional<Mutant> release_early(const Program& program, std::mt19937_64& random) {
  Target t(program, random);
  const auto i = t.pick(
      random, [](const Entry& e) { return e.instruction.kind == InstructionKind::kRelease; });
  if (!i || *i == 0) return std::nullopt;
  const std::size_t distance = below(random, 3) == 0
                                   ? 1 + below(random, *i)
                                   : 1 + below(random, std::min<std::size_t>(*i, 4));
  t.list.move(*i, *i - distance);
  return t.done(at(*i) + ", a release, comes " + std::to_string(distance) + " places earlier");
}

std::optional<Mutant> overlap_bytes(const Program& program, std::mt19937_64& random) {
  Target t(program, random);
  std::vector<Buffer>& buffers = t.target_class().buffers;
  // Buffers of the chosen sub-program, so that null_run() plays the change.
  std::vector<std::size_t> used;
  for (const Entry& e : t.list.entries) {
    for (const Access& a : e.accesses) {
      if (std::find(used.begin(), used.end(), a.buffer.index()) == used.end()) {
        used.push_back(a.buffer.index());
      }
    }
  }
  if (used.size() < 2) return std::nullopt;
  const std::size_t b = used[below(random, used.size())];
  const std::size_t other = used[below(random, used.size())];
  if (b == other) return std::nullopt;
  std::int64_t offset = buffers[other].offset;
  if (below(random, 2) == 0) {
    const std::int64_t inside = (buffers[other].bytes - 1) / kTensorAlignment;
    offset += kTensorAlignment *
              static_cast<std::int64_t>(below(random, static_cast<std::size_t>(inside) + 1));
  }
  const std::int64_t end = offset + round_up(buffers[b].bytes, kTensorAlignment);
  if (buffers[b].offset == offset || end > t.target_class().arena_bytes[0]) return std::nullopt;
  buffers[b].offset = offset;
  for (std::int64_t& peak : t.target_class().peak_bytes) peak = std::max(peak, end);
  return t.done("b" + std::to_string(b) + " lies on b" + std::to_string(other));
}

std::optional<Mutant> lose_peer(const Program& program, std::mt19937_64& random) {
  Target t(program, random);
  const auto i = t.pick(random, [](const Entry& e) { return is_matched(e.instruction.kind); });
  if (!i) return std::nullopt;
  Instruction& instruction = t.list[*i].instruction;
  const bool message = !is_collective(instruction.kind);
  switch (below(random, message ? 3 : 1)) {
    case 1:
      instruction.peer_stage = static_cast<std::int32_t>(below(random, program.stage_rank.size()));
      return t.done(at(*i) + " has another peer");
    case 2:
      instruction.boundary += 1;
      return t.done(at(*i) + " is of another boundary tensor");
    default:
      t.list.erase(*i);
      return t.done(at(*i) + " is gone");
  }
}

/// Circular waits: for a later instruction, between messages that were one group call, or by
/// receiving a gradient before sending the activation that it follows from.
std::optional<Mutant> make_cycle(const Program& program, std::mt19937_64& random) {
  Target t(program, random);
  switch (below(random, 3)) {
    case 0: {
      if (t.list.size() < 2) return std::nullopt;
      const std::size_t i = below(random, t.list.size() - 1);
      const std::size_t j = i + 1 + below(random, t.list.size() - i - 1);
      t.list[i].waits.push_back(t.list[j].id);
      return t.done(at(i) + " waits for " + at(j), true);
    }
    case 1: {
      const auto grouped = [](const Instruction& i) { return i.fuse >= 0; };
      if (!t.pick(random, [&](const Entry& e) { return grouped(e.instruction); }))
        return std::nullopt;
      for (RankClass& c : t.mutant.program.classes) {
        for (Instruction& i : c.programs[static_cast<std::size_t>(t.mutant.kind)].instructions)
          i.fuse = -1;
      }
      for (Entry& e : t.list.entries) e.instruction.fuse = -1;
      return t.done("no messages are grouped, on any rank");
    }
    default: {
      // Micro-batch 0: its gradient overtakes no other.
      const auto send = t.pick(random, [](const Entry& e) {
        return e.instruction.kind == InstructionKind::kSendActivation &&
               e.instruction.micro_batch == 0;
      });
      if (!send) return std::nullopt;
      const Instruction& sent = t.list[*send].instruction;
      const auto receive = t.pick(random, [&](const Entry& e) {
        return e.instruction.kind == InstructionKind::kRecvGradient &&
               e.instruction.unit == sent.unit && e.instruction.micro_batch == sent.micro_batch;
      });
      if (!receive || *receive < *send) return std::nullopt;
      t.list[*receive].instruction.fuse = -1;
      t.list.move(*receive, *send);
      return t.done(at(*receive) + ", a gradient, is awaited before " + at(*send) + " is sent");
    }
  }
}

bool adds_gradient(const RankClass& c, const Entry& e) {
  return e.instruction.kind == InstructionKind::kBackward &&
         std::any_of(e.accesses.begin(), e.accesses.end(), [&](const Access& a) {
           return c.buffers[a.buffer.index()].role == BufferRole::kGradients;
         });
}

/// Changes which addition comes first: the modes of one, the places of two, or of two whole
/// micro-batches.
std::optional<Mutant> reorder_sums(const Program& program, std::mt19937_64& random) {
  Target t(program, random);
  const RankClass& c = t.target_class();
  const auto i = t.pick(random, [&](const Entry& e) { return adds_gradient(c, e); });
  if (!i) return std::nullopt;
  const auto swap_modes = [&](Entry& x, Entry& y) {
    for (Access& a : x.accesses) {
      if (c.buffers[a.buffer.index()].role != BufferRole::kGradients) continue;
      for (Access& b : y.accesses) {
        if (b.buffer == a.buffer) std::swap(a.mode, b.mode);
      }
    }
  };
  std::optional<std::size_t> j;  // the same unit, next micro-batch
  for (std::size_t k = *i + 1; k < t.list.size() && !j; ++k) {
    if (adds_gradient(c, t.list[k]) && t.list[k].instruction.unit == t.list[*i].instruction.unit)
      j = k;
  }
  if (!j || below(random, 3) == 0) {
    bool changed = false;
    for (Access& a : t.list[*i].accesses) {
      if (c.buffers[a.buffer.index()].role != BufferRole::kGradients || changed) continue;
      a.mode = a.mode == AccessMode::kWrite ? AccessMode::kUpdate : AccessMode::kWrite;
      changed = true;
    }
    return t.done(at(*i) + " starts the sum over, or does not start it");
  }
  const std::int32_t first = t.list[*i].instruction.micro_batch;
  const std::int32_t second = t.list[*j].instruction.micro_batch;
  if (below(random, 2) == 0) {
    swap_modes(t.list[*i], t.list[*j]);
    t.list.swap(*i, *j);
    return t.done(at(*i) + " and " + at(*j) + ", two additions to one gradient, change places");
  }
  // Everything of the second micro-batch from the first backward of the first on comes first.
  std::size_t begin = *i;
  while (begin > 0 && t.list[begin - 1].instruction.micro_batch == first) --begin;
  std::size_t end = *j + 1;
  while (end < t.list.size() && t.list[end].instruction.micro_batch == second) ++end;
  for (std::size_t x = begin; x < end; ++x) {
    for (std::size_t y = x + 1; y < end; ++y) {
      const Instruction& a = t.list[x].instruction;
      const Instruction& b = t.list[y].instruction;
      if (a.micro_batch == first && b.micro_batch == second && a.unit == b.unit &&
          adds_gradient(c, t.list[x]) && adds_gradient(c, t.list[y])) {
        swap_modes(t.list[x], t.list[y]);
      }
    }
  }
  std::stable_partition(t.list.entries.begin() + static_cast<std::ptrdiff_t>(begin),
                        t.list.entries.begin() + static_cast<std::ptrdiff_t>(end),
                        [&](const Entry& e) { return e.instruction.micro_batch == second; });
  return t.done("backward of micro-batch " + std::to_string(second) + " comes before that of " +
                std::to_string(first));
}

using V = Violation;
constexpr std::array kDroppedWait = {V::kRace, V::kUseAfterRelease, V::kOverlap};
constexpr std::array kSwappedOrder = {
    V::kRace,          V::kUseBeforeWrite, V::kUseAfterRelease,   V::kOverlap, V::kDeadlock,
    V::kQueueProgress, V::kGroupOrder,     V::kAccumulationOrder, V::kMissing, V::kSizeMismatch};
constexpr std::array kWrongSize = {V::kSizeMismatch, V::kMalformed, V::kUseBeforeWrite};
constexpr std::array kEarlyRelease = {V::kUseAfterRelease, V::kOverlap};
constexpr std::array kOverlappingBytes = {V::kOverlap};
// kMissing: what all members of a group have lost has no peer that could miss it.
// A gather that all its members lose leaves its users without their parameters.
constexpr std::array kMissingPeer = {V::kUnmatched, V::kMissing, V::kRace, V::kUseBeforeWrite};
// kMalformed: a wait for a later instruction
constexpr std::array kCycle = {V::kMalformed, V::kDeadlock, V::kQueueProgress};
constexpr std::array kSums = {V::kAccumulationOrder};

}  // namespace

std::span<const Mutator> mutators() {
  static const std::array<Mutator, 8> kMutators = {{
      {"dropped wait", drop_wait, kDroppedWait},
      {"swapped order", swap_order, kSwappedOrder},
      {"wrong size", change_size, kWrongSize},
      {"early release", release_early, kEarlyRelease},
      {"overlapping bytes", overlap_bytes, kOverlappingBytes},
      {"missing peer", lose_peer, kMissingPeer},
      {"cycle", make_cycle, kCycle},
      {"accumulation order", reorder_sums, kSums},
  }};
  return kMutators;
}

}  // namespace bayplan::test
