// Absence of deadlock under rendezvous semantics: no message is buffered.
//
// Who meets whom is fixed before anything runs (verify_matching.cpp), every rank issues in a fixed
// order, and nothing that became possible is ever withdrawn. So each step has a fixed set of
// events that must precede its start and its completion, and happens once: an event graph. Which
// events can happen does not depend on the order in which one lets them happen, so one execution
// that always makes progress decides for all: the program ends iff the graph has no cycle.
//
//   start(step)    after completion of the step before it on its stream and of all waits of all
//                  its members
//   meet(match)    after the start of the steps of all its sides
//   complete(step) after start(step) and the meetings of all its members
//
// With one queue per rank for all communication, its steps follow one another in issue order; and
// since compute occupies the thread that issues, a communication step also starts after the
// compute issued before it. These are additional edges, so a program that passes with them passes
// without; the second graph is only built to tell the two failures apart.
#include <algorithm>

#include "planner/program/verify_internal.h"

namespace bayplan::verification {
namespace {

class EventGraph {
 public:
  EventGraph(const Program& program, ProgramKind kind, const Folding& folding,
             const Matching& matching, bool one_queue)
      : program_(program), kind_(kind), folding_(folding), matching_(matching) {
    for (std::size_t p = 0; p < folding.players.size(); ++p) {
      first_event_.push_back(events_);
      steps_.push_back(make_steps(list(p), one_queue));
      events_ += 2 * static_cast<std::int32_t>(steps_.back().steps.size());
    }
    first_match_ = events_;
    events_ += static_cast<std::int32_t>(matching.matches.size());
    for (std::size_t p = 0; p < folding.players.size(); ++p) connect(p, one_queue);
    for (std::size_t m = 0; m < matching.matches.size(); ++m) connect_match(m);
  }

  /// Lets everything happen that can; false when something is left.
  bool run() {
    std::vector<std::int32_t> first(static_cast<std::size_t>(events_) + 1, 0);
    std::vector<std::int32_t> unmet(static_cast<std::size_t>(events_), 0);
    for (const Edge& e : edges_) {
      ++first[static_cast<std::size_t>(e.from) + 1];
      ++unmet[static_cast<std::size_t>(e.to)];
    }
    for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<std::int32_t> next(edges_.size());
    std::vector<std::int32_t> fill(first.begin(), first.end() - 1);
    for (const Edge& e : edges_) {
      next[static_cast<std::size_t>(fill[static_cast<std::size_t>(e.from)]++)] = e.to;
    }
    happened_.assign(static_cast<std::size_t>(events_), false);
    std::vector<std::int32_t> ready;
    for (std::int32_t e = 0; e < events_; ++e) {
      if (unmet[static_cast<std::size_t>(e)] == 0) ready.push_back(e);
    }
    std::int32_t count = 0;
    while (!ready.empty()) {
      const auto e = static_cast<std::size_t>(ready.back());
      ready.pop_back();
      happened_[e] = true;
      ++count;
      for (std::int32_t k = first[e]; k < first[e + 1]; ++k) {
        const std::int32_t to = next[static_cast<std::size_t>(k)];
        if (--unmet[static_cast<std::size_t>(to)] == 0) ready.push_back(to);
      }
    }
    return count == events_;
  }

  /// Names a matched instruction that never completes and whom it waits for; if none has
  /// started, an instruction whose waits are never done.
  void report(Violation violation, Findings& findings) const {
    for (const bool started : {true, false}) {
      for (std::size_t p = 0; p < folding_.players.size(); ++p) {
        const std::vector<std::int32_t>& step_of = steps_[p].step_of;
        for (std::size_t i = 0; i < step_of.size(); ++i) {
          if (happened(complete(p, step_of[i])) || happened(start(p, step_of[i])) != started)
            continue;
          const std::int32_t match = matching_.match_of[p][i];
          if (started && (match < 0 || happened(first_match_ + match))) continue;
          const int rank = folding_.players[p];
          findings.add(violation, kind_, rank, InstructionId(i),
                       describe(list(p), static_cast<std::int32_t>(i)) + " never completes: " +
                           (started ? awaited(p, match) : "what it waits for never completes"));
          return;
        }
      }
    }
  }

 private:
  struct Edge {
    std::int32_t from = 0;
    std::int32_t to = 0;
  };

  const InstructionList& list(std::size_t player) const {
    return program_.list(folding_.players[player], kind_);
  }
  std::int32_t start(std::size_t player, std::int32_t step) const {
    return first_event_[player] + 2 * step;
  }
  std::int32_t complete(std::size_t player, std::int32_t step) const {
    return start(player, step) + 1;
  }
  bool happened(std::int32_t event) const { return happened_[static_cast<std::size_t>(event)]; }

  void connect(std::size_t p, bool one_queue) {
    const Steps& steps = steps_[p];
    for (std::size_t s = 0; s < steps.steps.size(); ++s) {
      const auto step = static_cast<std::int32_t>(s);
      edges_.push_back({start(p, step), complete(p, step)});
      if (steps.steps[s].before >= 0) {
        edges_.push_back({complete(p, steps.steps[s].before), start(p, step)});
      }
    }
    const InstructionList& l = list(p);
    std::int32_t last_compute = -1;
    for (std::size_t i = 0; i < l.instructions.size(); ++i) {
      const Instruction& instruction = l.instructions[i];
      const std::int32_t step = steps.step_of[i];
      for (std::int32_t w = instruction.waits.begin; w < instruction.waits.end; ++w) {
        const std::size_t target = l.waits[static_cast<std::size_t>(w)].index();
        edges_.push_back({complete(p, steps.step_of[target]), start(p, step)});
      }
      if (instruction.stream == Stream::kCompute) {
        last_compute = step;
      } else if (one_queue && communicates(instruction.stream) && last_compute >= 0) {
        edges_.push_back({complete(p, last_compute), start(p, step)});
      }
    }
  }

  void connect_match(std::size_t m) {
    const std::int32_t meeting = first_match_ + static_cast<std::int32_t>(m);
    for (const Matching::Side& side : matching_.matches[m]) {
      const auto p = static_cast<std::size_t>(side.player);
      const std::int32_t step = steps_[p].step_of[static_cast<std::size_t>(side.instruction)];
      edges_.push_back({start(p, step), meeting});
      edges_.push_back({meeting, complete(p, step)});
    }
  }

  std::string awaited(std::size_t player, std::int32_t match) const {
    for (const Matching::Side& side : matching_.matches[static_cast<std::size_t>(match)]) {
      const auto p = static_cast<std::size_t>(side.player);
      if (p == player) continue;
      const std::int32_t step = steps_[p].step_of[static_cast<std::size_t>(side.instruction)];
      if (happened(start(p, step))) continue;
      return "its partner " + describe(list(p), side.instruction) + " of rank " +
             std::to_string(folding_.players[p]) + " never starts";
    }
    return "its partners never start";
  }

  const Program& program_;
  ProgramKind kind_;
  const Folding& folding_;
  const Matching& matching_;
  std::vector<Steps> steps_;               // per player
  std::vector<std::int32_t> first_event_;  // per player
  std::int32_t first_match_ = 0;
  std::int32_t events_ = 0;
  std::vector<Edge> edges_;
  std::vector<bool> happened_;
};

}  // namespace

void check_progress(const Program& program, ProgramKind kind, const Folding& folding,
                    const Matching& matching, Findings& findings) {
  EventGraph queued(program, kind, folding, matching, true);
  if (queued.run()) return;
  EventGraph streams(program, kind, folding, matching, false);
  if (streams.run()) {
    queued.report(Violation::kQueueProgress, findings);
  } else {
    streams.report(Violation::kDeadlock, findings);
  }
}

}  // namespace bayplan::verification
