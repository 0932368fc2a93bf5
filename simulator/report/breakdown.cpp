#include "simulator/report/breakdown.h"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "planner/program/dispatch.h"

namespace bayplan::sim {
namespace {

enum class Part : std::uint8_t {
  kCompute,
  kOptimizer,
  kLaunch,
  kOffload,
  kCommunication,
  kNothing
};

/// ProgramConsumer that says which part an instruction's own time belongs to.
struct PartOf {
  static Part on_initialize(const InstructionList&, const Instruction&) { return Part::kCompute; }
  static Part on_load_micro_batch(const InstructionList&, const Instruction&) {
    return Part::kLaunch;
  }
  static Part on_unit_compute(const InstructionList&, const Instruction&) { return Part::kCompute; }
  static Part on_send(const InstructionList&, const Instruction&) { return Part::kCommunication; }
  static Part on_recv(const InstructionList&, const Instruction&) { return Part::kCommunication; }
  static Part on_collective(const InstructionList&, const Instruction&) {
    return Part::kCommunication;
  }
  static Part on_transfer(const InstructionList&, const Instruction&) { return Part::kOffload; }
  static Part on_release(const InstructionList&, const Instruction&) { return Part::kNothing; }
  static Part on_gradient_norm(const InstructionList&, const Instruction&) {
    return Part::kOptimizer;
  }
  static Part on_optimizer_step(const InstructionList&, const Instruction&) {
    return Part::kOptimizer;
  }
  static Part on_accumulate(const InstructionList&, const Instruction&) { return Part::kCompute; }
  static Part on_end_step(const InstructionList&, const Instruction&) { return Part::kNothing; }
};

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Disjoint and ascending.
std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::vector<Interval> out;
  for (const Interval& i : intervals) {
    if (!out.empty() && i.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, i.end);
    } else {
      out.push_back(i);
    }
  }
  return out;
}

/// Length of [begin, end) that lies inside `intervals`.
std::int64_t covered(const std::vector<Interval>& intervals, std::int64_t begin, std::int64_t end) {
  auto at = std::lower_bound(intervals.begin(), intervals.end(), begin,
                             [](const Interval& i, std::int64_t t) { return i.end <= t; });
  std::int64_t sum = 0;
  for (; at != intervals.end() && at->begin < end; ++at) {
    sum += std::min(at->end, end) - std::max(at->begin, begin);
  }
  return sum;
}

/// Picoseconds of one rank, by part.
struct RankParts {
  std::int64_t compute = 0, optimizer = 0, launch = 0, offload = 0, exposed = 0, bubble = 0;
};

/// Busy intervals of a rank that are not computation.
struct Background {
  std::vector<Interval> communication;
  std::vector<Interval> transfers;
};

void add_gap(RankParts& parts, const Background& background, std::int64_t begin, std::int64_t end) {
  if (end <= begin) return;
  const std::int64_t offload = covered(background.transfers, begin, end);
  const std::int64_t exposed =
      std::min(covered(background.communication, begin, end), end - begin - offload);
  parts.offload += offload;
  parts.exposed += exposed;
  parts.bubble += end - begin - offload - exposed;
}

RankParts rank_parts(const InstructionList& list, std::span<const TimelineEvent> events,
                     std::int64_t step_begin, std::int64_t step_end) {
  const PartOf part_of;
  Background background;
  for (std::size_t i = 0; i < events.size();) {
    const Instruction& instruction = list.instructions[events[i].instruction.index()];
    const Part part = dispatch(part_of, list, instruction);
    // Members of a group end together; until the last one's partner came, they only waited.
    Interval busy{events[i].start.value, events[i].end.value};
    for (++i; i < events.size() && instruction.fuse >= 0; ++i) {
      if (list.instructions[events[i].instruction.index()].fuse != instruction.fuse) break;
      busy.begin = std::max(busy.begin, events[i].start.value);
    }
    if (part == Part::kOffload) background.transfers.push_back(busy);
    if (part == Part::kCommunication) background.communication.push_back(busy);
  }
  background.communication = merged(std::move(background.communication));
  background.transfers = merged(std::move(background.transfers));

  RankParts parts;
  std::int64_t cursor = step_begin;
  for (const TimelineEvent& e : events) {
    const Instruction& instruction = list.instructions[e.instruction.index()];
    const Part part = dispatch(part_of, list, instruction);
    const bool local = part == Part::kCompute || part == Part::kOptimizer || part == Part::kLaunch;
    if (!local || e.end.value <= cursor) continue;
    const std::int64_t start = std::max(e.start.value, cursor);
    // The last thing it waited for; what lies between that and its start is the host's doing.
    std::int64_t released = cursor;
    for (std::int32_t w = instruction.waits.begin; w < instruction.waits.end; ++w) {
      const std::size_t awaited = list.waits[static_cast<std::size_t>(w)].index();
      if (awaited < events.size()) released = std::max(released, events[awaited].end.value);
    }
    released = std::min(released, start);
    add_gap(parts, background, cursor, released);
    parts.launch += start - released;
    const std::int64_t busy = e.end.value - start;
    (part == Part::kCompute     ? parts.compute
     : part == Part::kOptimizer ? parts.optimizer
                                : parts.launch) += busy;
    cursor = e.end.value;
  }
  add_gap(parts, background, cursor, step_end);
  return parts;
}

}  // namespace

StepBreakdown break_down(const Program& program, const Timeline& timeline, std::int32_t step) {
  const auto& all = timeline.events;
  const auto in_step = [step](const TimelineEvent& e) { return e.step == step; };
  const auto first = std::find_if(all.begin(), all.end(), in_step);
  const auto last = std::find_if_not(first, all.end(), in_step);
  std::int64_t begin = std::numeric_limits<std::int64_t>::max();
  std::int64_t end = 0;
  for (auto e = first; e != last; ++e) {
    begin = std::min(begin, e->start.value);
    end = std::max(end, e->end.value);
  }
  RankParts sum;
  double ranks = 0;
  for (auto at = first; at != last;) {
    const auto next =
        std::find_if(at, last, [at](const TimelineEvent& e) { return e.rank != at->rank; });
    const RankParts p =
        rank_parts(program.list(at->rank, timeline.program), {at, next}, begin, end);
    sum.compute += p.compute;
    sum.optimizer += p.optimizer;
    sum.launch += p.launch;
    sum.offload += p.offload;
    sum.exposed += p.exposed;
    sum.bubble += p.bubble;
    ranks += 1;
    at = next;
  }
  if (ranks == 0) return {};
  const auto mean = [ranks](std::int64_t ps) {
    return Seconds(static_cast<double>(ps) * 1e-12 / ranks);
  };
  return {mean(sum.compute),   mean(sum.exposed), mean(sum.bubble),
          mean(sum.optimizer), mean(sum.offload), mean(sum.launch)};
}

}  // namespace bayplan::sim
