// Steps and the happens-before order of one instruction list.
#include <algorithm>

#include "planner/program/verify_internal.h"

namespace bayplan::verification {

Steps make_steps(const InstructionList& list, bool one_queue) {
  Steps result;
  result.steps.reserve(list.instructions.size());
  result.step_of.reserve(list.instructions.size());
  std::array<std::int32_t, kStreamCount> last_step{};  // per lane
  std::array<std::int32_t, kStreamCount> last_fuse{};
  last_step.fill(-1);
  for (const Instruction& i : list.instructions) {
    const Stream lane = one_queue && communicates(i.stream) ? Stream::kP2p : i.stream;
    const auto l = static_cast<std::size_t>(lane);
    const bool joins = i.fuse >= 0 && last_step[l] >= 0 && last_fuse[l] == i.fuse;
    if (!joins) {
      Steps::Step step;
      step.lane = static_cast<std::int32_t>(l);
      step.before = last_step[l];
      step.position =
          step.before < 0 ? 1 : result.steps[static_cast<std::size_t>(step.before)].position + 1;
      last_step[l] = static_cast<std::int32_t>(result.steps.size());
      result.steps.push_back(step);
    }
    last_fuse[l] = i.fuse;
    result.step_of.push_back(last_step[l]);
  }
  return result;
}

HappensBefore::HappensBefore(const InstructionList& list) : steps_(make_steps(list, false)) {
  clocks_.resize(steps_.steps.size());
  std::vector<bool> begun(steps_.steps.size(), false);
  const auto join = [&](std::size_t step, std::int32_t done) {
    const auto d = static_cast<std::size_t>(done);
    auto& clock = clocks_[step];
    for (std::size_t lane = 0; lane < clock.size(); ++lane) {
      clock[lane] = std::max(clock[lane], clocks_[d][lane]);
    }
    std::int32_t& own = clock[static_cast<std::size_t>(steps_.steps[d].lane)];
    own = std::max(own, steps_.steps[d].position);
  };
  // Waits point to earlier instructions, so a step's clock is final once its last member is
  // reached. Whoever waits for a step before that sees a part of it, which only weakens the order.
  for (std::size_t i = 0; i < list.instructions.size(); ++i) {
    const auto step = static_cast<std::size_t>(steps_.step_of[i]);
    if (!begun[step]) {
      begun[step] = true;
      if (steps_.steps[step].before >= 0) join(step, steps_.steps[step].before);
    }
    const Range waits = list.instructions[i].waits;
    for (std::int32_t w = waits.begin; w < waits.end; ++w) {
      const std::int32_t done = steps_.step_of[list.waits[static_cast<std::size_t>(w)].index()];
      if (done != static_cast<std::int32_t>(step)) join(step, done);
    }
  }
}

void check_groups(const ClassProgram& p, Findings& findings) {
  std::array<std::int32_t, kStreamCount> last{};  // per stream
  last.fill(-1);
  for (std::int32_t i = 0; i < p.size(); ++i) {
    std::int32_t& before = last[static_cast<std::size_t>(p.at(i).stream)];
    if (before >= 0 && before != i - 1 && p.at(i).fuse >= 0 && p.at(i).fuse == p.at(before).fuse) {
      findings.add(Violation::kMalformed, p.kind, p.rank, InstructionId(i),
                   describe(p.list, i) + " is of one group call with " + describe(p.list, before) +
                       ", but other instructions stand between them");
    }
    before = i;
  }
}

}  // namespace bayplan::verification
