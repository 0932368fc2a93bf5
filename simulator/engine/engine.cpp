#include "simulator/engine/engine.h"

#include <algorithm>
#include <limits>
#include <string>

#include "planner/program/text.h"
#include "simulator/compute/shared_cores.h"
#include "simulator/engine/class_graph.h"
#include "simulator/engine/event_queue.h"

namespace bayplan::sim {
namespace {

// Event keys: what in the two lowest bits; above them (rank, position) or (node, version), so
// that events of equal time come in (rank, instruction) order.
enum class EventKind : std::uint64_t { kCallEnds, kMatchWorks, kMatchEnds, kCores };

constexpr std::uint64_t event_key(std::int32_t major, std::uint32_t minor, EventKind kind) {
  return (static_cast<std::uint64_t>(major) << 34) | (std::uint64_t{minor} << 2) |
         static_cast<std::uint64_t>(kind);
}

struct Position {
  std::int32_t rank = 0;
  std::int32_t call = 0;
};

class Engine {
 public:
  Engine(const Prepared& prepared, const EngineOptions& options)
      : prepared_(prepared), program_(*prepared.program), options_(options) {
    scale_costs();
    lay_out_ranks();
    for (const CpuNodeModel& node : prepared.nodes) cores_.emplace_back(node);
    versions_.assign(cores_.size(), 0);
    matches_.resize(prepared.matching.matches.size());
    queue_.reserve(ranks_.size() * 4);
    result_.step_times.resize(static_cast<std::size_t>(options.steps));
  }

  Result<EngineResult> run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      begin_step(static_cast<std::int32_t>(rank), 0);
    settle(0);
    while (!queue_.empty()) {
      const Event event = queue_.pop();
      handle(event);
      settle(event.time);
    }
    if (!finished_steps_) return deadlock();
    for (std::size_t s = 0; s < spans_.size(); ++s) {
      result_.step_times[s] = Picoseconds(spans_[s].end - spans_[s].begin);
    }
    return std::move(result_);
  }

 private:
  struct RankState {
    const ClassGraph* graph = nullptr;
    const std::int64_t* issued_at = nullptr;
    const ComputeCost* costs = nullptr;
    const std::int32_t* match_of = nullptr;
    std::int32_t* pending = nullptr;
    TimelineEvent* events = nullptr;  // of the current step; nullptr when not recorded
    std::int64_t step_begin = 0;
    std::int32_t step = 0;
    std::int32_t calls_left = 0;
    std::int32_t node = -1;
  };
  struct MatchState {
    std::int64_t ready = 0;
    std::int32_t arrived = 0;
    std::int32_t working = 0;
  };
  struct Span {
    std::int64_t begin = std::numeric_limits<std::int64_t>::max();
    std::int64_t end = 0;
  };

  static Picoseconds scaled(Picoseconds t, double factor) {
    if (factor == 1.0) return t;
    return Picoseconds(static_cast<std::int64_t>(static_cast<double>(t.value) * factor + 0.5));
  }

  void scale_costs() {
    costs_ = prepared_.costs;
    for (ClassCosts& c : costs_) {
      for (ComputeCost& cost : c.calls) cost.time = scaled(cost.time, options_.compute_scale);
    }
    match_costs_ = prepared_.match_costs;
    for (CommunicationCost& cost : match_costs_) {
      cost.latency = scaled(cost.latency, options_.communication_scale);
      cost.busy_latency = scaled(cost.busy_latency, options_.communication_scale);
      cost.work = scaled(cost.work, options_.communication_scale);
    }
  }

  void lay_out_ranks() {
    const auto world = static_cast<std::size_t>(program_.world_size());
    std::size_t calls = 0;
    for (std::size_t rank = 0; rank < world; ++rank) calls += graph_of(rank).calls.size();
    pending_.resize(calls);
    spans_.resize(static_cast<std::size_t>(options_.steps));
    ranks_.resize(world);
    std::size_t pending_base = 0;
    for (std::size_t rank = 0; rank < world; ++rank) {
      RankState& state = ranks_[rank];
      const auto c = static_cast<std::size_t>(program_.rank_class[rank]);
      state.graph = &prepared_.graphs[c];
      state.issued_at = costs_[c].issued_at.data();
      state.costs = costs_[c].calls.data();
      state.match_of = prepared_.matching.match_of.data() + prepared_.matching.endpoint_base[rank];
      state.pending = pending_.data() + pending_base;
      state.node = prepared_.node_of[rank];
      pending_base += state.graph->calls.size();
      event_base_.push_back(step_events_);
      step_events_ += state.graph->list->instructions.size();
    }
    if (options_.record) {
      result_.events.resize(step_events_ * static_cast<std::size_t>(options_.steps));
    }
  }

  const ClassGraph& graph_of(std::size_t rank) const {
    return prepared_.graphs[static_cast<std::size_t>(program_.rank_class[rank])];
  }

  void begin_step(std::int32_t rank, std::int64_t now) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    const auto& calls = state.graph->calls;
    state.step_begin = now;
    state.calls_left = static_cast<std::int32_t>(calls.size());
    for (std::size_t c = 0; c < calls.size(); ++c) state.pending[c] = calls[c].pending;
    if (options_.record) open_events(rank, state);
    if (calls.empty()) end_step(rank, now);
    for (std::int32_t root : state.graph->roots) begin_call(state, {rank, root}, now);
  }

  void open_events(std::int32_t rank, RankState& state) {
    const std::size_t base = static_cast<std::size_t>(state.step) * step_events_ +
                             event_base_[static_cast<std::size_t>(rank)];
    state.events = result_.events.data() + base;
    const std::size_t n = state.graph->list->instructions.size();
    for (std::size_t i = 0; i < n; ++i) {
      TimelineEvent& e = state.events[i];
      e.rank = rank;
      e.step = state.step;
      e.instruction = InstructionId(i);
      e.ready = Picoseconds(state.step_begin);
    }
  }

  void end_step(std::int32_t rank, std::int64_t now) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    Span& span = spans_[static_cast<std::size_t>(state.step)];
    span.end = std::max(span.end, now);
    ++state.step;
    if (++finished_ranks_ < ranks_.size()) return;
    if (state.step == options_.steps) {
      finished_steps_ = true;
      return;
    }
    // Steps start together, as in a run, so that none hides in another.
    finished_ranks_ = 0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) begin_step(static_cast<std::int32_t>(r), now);
  }

  /// All that the call waits for is done, its queue included.
  void begin_call(RankState& state, Position at, std::int64_t now) {
    const auto c = static_cast<std::size_t>(at.call);
    const Call& call = state.graph->calls[c];
    const std::int64_t issued = state.step_begin + state.issued_at[c];
    const std::int64_t start = std::max(now, issued);
    if (state.events != nullptr) note_start(state, call, issued, start);
    if (call.endpoints.size() > 0) {
      state.pending[c] = call.endpoints.size();
      for (std::int32_t e = call.endpoints.begin; e < call.endpoints.end; ++e) {
        arrive(state.match_of[e], start, now);
      }
      return;
    }
    note_begin(state, start);
    const ComputeCost& cost = state.costs[c];
    if (cost.time.value == 0 && start == now) {
      done_.push_back(at);
    } else if (state.node >= 0 && cost.time.value > 0) {
      const auto task = static_cast<std::uint32_t>(at.call) * 2;
      start_task(state.node, now, cost.time.value, cost.threads, cost.slowdown, at.rank, task);
    } else {
      const auto minor = static_cast<std::uint32_t>(at.call);
      queue_.push({start + cost.time.value, event_key(at.rank, minor, EventKind::kCallEnds)});
    }
  }

  void note_begin(const RankState& state, std::int64_t start) {
    Span& span = spans_[static_cast<std::size_t>(state.step)];
    span.begin = std::min(span.begin, start);
  }

  static void note_start(RankState& state, const Call& call, std::int64_t issued,
                         std::int64_t start) {
    for (std::int32_t i = call.first; i < call.first + call.count; ++i) {
      TimelineEvent& e = state.events[i];
      e.ready = Picoseconds(std::max(e.ready.value, issued));
      e.start = Picoseconds(start);
    }
  }

  void arrive(std::int32_t match, std::int64_t ready, std::int64_t now) {
    if (match < 0) return;  // no partner: never done
    const auto m = static_cast<std::size_t>(match);
    MatchState& state = matches_[m];
    const Match& meeting = prepared_.matching.matches[m];
    state.ready = std::max(state.ready, ready);
    if (++state.arrived < meeting.members.size()) return;
    const std::int64_t start = state.ready;
    state = MatchState{};
    note_begin(ranks_[static_cast<std::size_t>(member(meeting.members.begin).rank)], start);
    if (options_.record) note_meeting(meeting, start);
    const CommunicationCost& cost = match_costs_[m];
    const std::int32_t node = node_of(meeting);
    const bool busy = node >= 0 && cores_[static_cast<std::size_t>(node)].full();
    const std::int64_t works = start + (busy ? cost.busy_latency : cost.latency).value;
    if (node < 0) {
      state.working = 1;
      queue_.push({works + cost.work.value, match_key(meeting, EventKind::kMatchEnds)});
    } else if (works == now) {
      begin_work(match, now);
    } else {
      queue_.push({works, match_key(meeting, EventKind::kMatchWorks)});
    }
  }

  const MatchMember& member(std::int32_t m) const {
    return prepared_.matching.members[static_cast<std::size_t>(m)];
  }

  std::int32_t node_of(const Match& meeting) const {
    return ranks_[static_cast<std::size_t>(member(meeting.members.begin).rank)].node;
  }

  std::uint64_t match_key(const Match& meeting, EventKind kind) const {
    const MatchMember& first = member(meeting.members.begin);
    return event_key(first.rank, static_cast<std::uint32_t>(first.endpoint), kind);
  }

  void note_meeting(const Match& meeting, std::int64_t start) {
    for (std::int32_t m = meeting.members.begin; m < meeting.members.end; ++m) {
      const RankState& state = ranks_[static_cast<std::size_t>(member(m).rank)];
      const Endpoint& e = state.graph->endpoints[static_cast<std::size_t>(member(m).endpoint)];
      state.events[e.instruction].start = Picoseconds(start);
    }
  }

  /// The latency of a meeting on CPUs has passed: its participants now need their cores.
  void begin_work(std::int32_t match, std::int64_t now) {
    const auto m = static_cast<std::size_t>(match);
    const Match& meeting = prepared_.matching.matches[m];
    const CommunicationCost& cost = match_costs_[m];
    if (cost.work.value == 0) {
      end_match(match);
      return;
    }
    if (!cost.needs_core) {
      matches_[m].working = 1;
      queue_.push({now + cost.work.value, match_key(meeting, EventKind::kMatchEnds)});
      return;
    }
    const std::int32_t first = cost.receiver_only ? meeting.members.end - 1 : meeting.members.begin;
    for (std::int32_t i = first; i < meeting.members.end; ++i) {
      ++matches_[m].working;
      const std::int32_t rank = member(i).rank;
      const auto task = static_cast<std::uint32_t>(member(i).endpoint) * 2 + 1;
      const std::int32_t node = ranks_[static_cast<std::size_t>(rank)].node;
      start_task(node, now, cost.work.value, 1, cost.slowdown, rank, task);
    }
  }

  void end_match(std::int32_t match) {
    const Match& meeting = prepared_.matching.matches[static_cast<std::size_t>(match)];
    for (std::int32_t m = meeting.members.begin; m < meeting.members.end; ++m) {
      const std::int32_t rank = member(m).rank;
      const RankState& state = ranks_[static_cast<std::size_t>(rank)];
      const std::int32_t call =
          state.graph->endpoints[static_cast<std::size_t>(member(m).endpoint)].call;
      if (--state.pending[call] == 0) done_.push_back({rank, call});
    }
  }

  void start_task(std::int32_t node, std::int64_t now, std::int64_t work, std::int32_t threads,
                  double slowdown, std::int32_t rank, std::uint32_t task) {
    SharedCores& cores = cores_[static_cast<std::size_t>(node)];
    cores.advance(now);
    cores.start(work, threads, slowdown, (static_cast<std::uint64_t>(rank) << 32) | task);
    mark_changed(node);
  }

  void mark_changed(std::int32_t node) {
    if (changed_.empty() || changed_.back() != node) changed_.push_back(node);
  }

  void handle(const Event& event) {
    const auto major = static_cast<std::int32_t>(event.key >> 34);
    const auto minor = static_cast<std::uint32_t>(event.key >> 2);
    switch (static_cast<EventKind>(event.key & 3)) {
      case EventKind::kCallEnds:
        done_.push_back({major, static_cast<std::int32_t>(minor)});
        return;
      case EventKind::kMatchWorks:
        begin_work(ranks_[static_cast<std::size_t>(major)].match_of[minor], event.time);
        return;
      case EventKind::kMatchEnds:
        leave_match(ranks_[static_cast<std::size_t>(major)].match_of[minor]);
        return;
      case EventKind::kCores:
        if (versions_[static_cast<std::size_t>(major)] == minor) finish_tasks(major, event.time);
        return;
    }
  }

  void leave_match(std::int32_t match) {
    if (--matches_[static_cast<std::size_t>(match)].working == 0) end_match(match);
  }

  void finish_tasks(std::int32_t node, std::int64_t now) {
    SharedCores& cores = cores_[static_cast<std::size_t>(node)];
    cores.advance(now);
    std::uint64_t key = 0;
    while (cores.take_finished(key)) {
      const auto rank = static_cast<std::int32_t>(key >> 32);
      const auto task = static_cast<std::uint32_t>(key);
      if ((task & 1) == 0) {
        done_.push_back({rank, static_cast<std::int32_t>(task / 2)});
      } else {
        leave_match(ranks_[static_cast<std::size_t>(rank)].match_of[task / 2]);
      }
    }
    mark_changed(node);
  }

  /// Works off everything that became possible at `now`, then looks at the cores once.
  void settle(std::int64_t now) {
    while (!done_.empty()) {
      const Position at = done_.back();
      done_.pop_back();
      end_call(at, now);
    }
    for (const std::int32_t node : changed_) {
      const auto n = static_cast<std::size_t>(node);
      const std::int64_t next = cores_[n].next_finish();
      const std::uint32_t version = ++versions_[n];
      if (next != SharedCores::kNever)
        queue_.push({next, event_key(node, version, EventKind::kCores)});
    }
    changed_.clear();
  }

  void end_call(Position at, std::int64_t now) {
    RankState& state = ranks_[static_cast<std::size_t>(at.rank)];
    const ClassGraph& graph = *state.graph;
    const Call& call = graph.calls[static_cast<std::size_t>(at.call)];
    result_.completed += call.count;
    if (state.events != nullptr) {
      for (std::int32_t i = call.first; i < call.first + call.count; ++i)
        state.events[i].end = Picoseconds(now);
    }
    for (std::int32_t s = call.successors.begin; s < call.successors.end; ++s) {
      const std::int32_t successor = graph.successors[static_cast<std::size_t>(s)];
      const std::int32_t next = successor / 2;
      if (state.events != nullptr && successor % 2 == 0) note_ready(state, next, now);
      if (--state.pending[next] == 0) begin_call(state, {at.rank, next}, now);
    }
    if (--state.calls_left == 0) end_step(at.rank, now);
  }

  static void note_ready(RankState& state, std::int32_t call, std::int64_t now) {
    const Call& c = state.graph->calls[static_cast<std::size_t>(call)];
    for (std::int32_t i = c.first; i < c.first + c.count; ++i)
      state.events[i].ready = Picoseconds(now);
  }

  /// Names, for up to four stopped ranks, the first instruction that never ended.
  Error deadlock() const {
    std::string stopped;
    int named = 0;
    for (std::size_t rank = 0; rank < ranks_.size() && named < 4; ++rank) {
      if (ranks_[rank].calls_left == 0) continue;
      stopped += (named++ == 0 ? "" : "; ") + awaited_by(rank);
    }
    return Error{"deadlock", "the program stops before its end: " + stopped, "program",
                 "run `bayplan verify` on the plan: it says which instruction is at fault"};
  }

  std::string awaited_by(std::size_t rank) const {
    const RankState& state = ranks_[rank];
    for (std::size_t c = 0; c < state.graph->calls.size(); ++c) {
      const Call& call = state.graph->calls[c];
      if (call.endpoints.size() == 0 || state.pending[c] <= 0) continue;
      for (std::int32_t e = call.endpoints.begin; e < call.endpoints.end; ++e) {
        const std::int32_t match = state.match_of[e];
        const Endpoint& endpoint = state.graph->endpoints[static_cast<std::size_t>(e)];
        const std::string what = "rank " + std::to_string(rank) + " waits in \"" +
                                 to_text(*state.graph->list, InstructionId(endpoint.instruction)) +
                                 "\" for ";
        if (match < 0) return what + "a partner that never comes";
        std::string others;
        const Match& meeting = prepared_.matching.matches[static_cast<std::size_t>(match)];
        for (std::int32_t m = meeting.members.begin; m < meeting.members.end; ++m) {
          if (member(m).rank == static_cast<std::int32_t>(rank)) continue;
          others += (others.empty() ? "rank " : ", rank ") + std::to_string(member(m).rank);
        }
        return what + others;
      }
    }
    return "rank " + std::to_string(rank) + " waits for itself";
  }

  const Prepared& prepared_;
  const Program& program_;
  EngineOptions options_;
  std::vector<ClassCosts> costs_;
  std::vector<CommunicationCost> match_costs_;
  std::vector<RankState> ranks_;
  std::vector<std::int32_t> pending_;
  std::vector<std::size_t> event_base_;
  std::size_t step_events_ = 0;
  std::vector<MatchState> matches_;
  std::vector<SharedCores> cores_;
  std::vector<std::uint32_t> versions_;
  EventQueue<Event> queue_;
  std::vector<Position> done_;         // ended at the present time, not yet worked off
  std::vector<std::int32_t> changed_;  // nodes whose cores changed at the present time
  std::vector<Span> spans_;
  std::size_t finished_ranks_ = 0;  // of the current step
  bool finished_steps_ = false;
  EngineResult result_;
};

}  // namespace

Result<EngineResult> run_engine(const Prepared& prepared, const EngineOptions& options) {
  return Engine(prepared, options).run();
}

}  // namespace bayplan::sim
