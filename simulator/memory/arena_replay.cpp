#include "simulator/memory/arena_replay.h"

#include <algorithm>

namespace bayplan::sim {
namespace {

std::int64_t arena_bytes(const Buffer& buffer) { return round_up(buffer.bytes, kTensorAlignment); }

void raise(std::int64_t& peak, std::int64_t value) { peak = std::max(peak, value); }

}  // namespace

ArenaReplay replay_arena(const RankClass& rank_class, ProgramKind kind) {
  ArenaReplay replay;
  const std::vector<Buffer>& buffers = rank_class.buffers;
  std::vector<bool> live(buffers.size(), false);
  RankMemory& memory = replay.memory;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (!buffers[b].persistent) continue;
    const auto tier = static_cast<std::size_t>(buffers[b].tier);
    live[b] = true;
    replay.persistent[tier] += arena_bytes(buffers[b]);
    raise(memory.peak_extent[tier], buffers[b].offset + arena_bytes(buffers[b]));
  }
  std::array<std::int64_t, kTierCount> now = replay.persistent;
  memory.peak_live = now;

  const InstructionList& list = rank_class.programs[static_cast<std::size_t>(kind)];
  for (std::size_t i = 0; i < list.instructions.size(); ++i) {
    const Instruction& instruction = list.instructions[i];
    const bool releases = instruction.kind == InstructionKind::kRelease;
    for (std::int32_t a = instruction.accesses.begin; a < instruction.accesses.end; ++a) {
      const std::size_t b = list.accesses[static_cast<std::size_t>(a)].buffer.index();
      const Buffer& buffer = buffers[b];
      if (buffer.persistent || live[b] != releases) continue;
      const auto tier = static_cast<std::size_t>(buffer.tier);
      const std::int64_t bytes = releases ? -arena_bytes(buffer) : arena_bytes(buffer);
      live[b] = !releases;
      now[tier] += bytes;
      replay.changes.push_back({InstructionId(i), buffer.tier, bytes});
      raise(memory.peak_live[tier], now[tier]);
      if (!releases) raise(memory.peak_extent[tier], buffer.offset + arena_bytes(buffer));
    }
  }
  return replay;
}

std::array<std::int64_t, kTierCount> replay_extent(const RankClass& rank_class) {
  std::array<std::int64_t, kTierCount> extent{};
  for (int k = 0; k < kProgramKindCount; ++k) {
    const ArenaReplay replay = replay_arena(rank_class, static_cast<ProgramKind>(k));
    for (std::size_t t = 0; t < extent.size(); ++t) raise(extent[t], replay.memory.peak_extent[t]);
  }
  return extent;
}

void add_memory_samples(const Program& program, Timeline& timeline) {
  std::vector<ArenaReplay> replays;
  for (const RankClass& c : program.classes) replays.push_back(replay_arena(c, timeline.program));

  struct Change {
    std::int64_t time;
    Tier tier;
    std::int64_t bytes;
  };
  std::vector<std::vector<Change>> changes(static_cast<std::size_t>(program.world_size()));
  // Events come by (step, rank, issue order), so each (step, rank) is one run of them.
  for (std::size_t begin = 0, end = 0; begin < timeline.events.size(); begin = end) {
    const TimelineEvent& first = timeline.events[begin];
    while (end < timeline.events.size() && timeline.events[end].rank == first.rank &&
           timeline.events[end].step == first.step) {
      ++end;
    }
    const auto rank = static_cast<std::size_t>(first.rank);
    const ArenaReplay& replay = replays[static_cast<std::size_t>(program.rank_class[rank])];
    for (const LiveChange& change : replay.changes) {
      if (change.instruction.index() >= end - begin) continue;
      const TimelineEvent& e = timeline.events[begin + change.instruction.index()];
      const Picoseconds time = change.bytes > 0 ? e.start : e.end;
      changes[rank].push_back({time.value, change.tier, change.bytes});
    }
  }
  for (std::size_t rank = 0; rank < changes.size(); ++rank) {
    std::array<std::int64_t, kTierCount> now =
        replays[static_cast<std::size_t>(program.rank_class[rank])].persistent;
    for (std::size_t t = 0; t < now.size(); ++t) {
      if (now[t] == 0) continue;
      timeline.memory.push_back(
          {static_cast<std::int32_t>(rank), static_cast<Tier>(t), Picoseconds(0), now[t]});
    }
    // A release at the very moment of another buffer's first write comes first: such buffers may
    // share bytes.
    std::stable_sort(changes[rank].begin(), changes[rank].end(),
                     [](const Change& a, const Change& b) {
                       return a.time != b.time ? a.time < b.time : (a.bytes < 0) > (b.bytes < 0);
                     });
    for (const Change& change : changes[rank]) {
      const auto tier = static_cast<std::size_t>(change.tier);
      now[tier] += change.bytes;
      const auto r = static_cast<std::int32_t>(rank);
      const bool same_moment = !timeline.memory.empty() && timeline.memory.back().rank == r &&
                               timeline.memory.back().tier == change.tier &&
                               timeline.memory.back().time.value == change.time;
      if (same_moment) {
        timeline.memory.back().live_bytes = now[tier];
      } else {
        timeline.memory.push_back({r, change.tier, Picoseconds(change.time), now[tier]});
      }
    }
  }
}

}  // namespace bayplan::sim
