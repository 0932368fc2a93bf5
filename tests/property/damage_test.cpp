// verify() meets any program: one field, anywhere, takes any value. It never crashes, and what it
// accepts still does what the undamaged program does.
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <random>

#include "executor/null_run.h"
#include "planner/program/text.h"
#include "planner/program/verify.h"
#include "tests/property/random_program.h"

namespace bayplan::test {
namespace {

class Damage {
 public:
  explicit Damage(std::uint64_t seed) : random_(seed) {}

  /// What was changed.
  std::string apply(Program& p) {
    RankClass& c = p.classes[below(p.classes.size())];
    kind = below(4) == 0 ? static_cast<ProgramKind>(below(kProgramKindCount))
                         : ProgramKind::kTrainStep;
    InstructionList& list = c.programs[static_cast<std::size_t>(kind)];
    const std::size_t where = below(20);
    if (where < 10) {
      const std::size_t i = below(list.instructions.size());
      return "i" + std::to_string(i) + ", field " + instruction(list.instructions[i]);
    }
    if (where < 14 && !list.accesses.empty()) {
      const std::size_t a = below(list.accesses.size());
      return "access " + std::to_string(a) + ", field " + access(list.accesses[a]);
    }
    if (where < 16 && !list.waits.empty()) {
      number(list.waits[below(list.waits.size())].value);
      return "a wait";
    }
    if (where < 19) {
      const std::size_t b = below(c.buffers.size());
      return "b" + std::to_string(b) + ", field " + buffer(c.buffers[b]);
    }
    switch (below(5)) {
      case 0:
        number(c.pp);
        return "pp of a class";
      case 1:
        number(c.stages[below(c.stages.size())]);
        return "a stage of a class";
      case 2:
        number(c.micro_batches);
        return "micro-batches of a class";
      case 3:
        number(p.rank_class[below(p.rank_class.size())]);
        return "the class of a rank";
      default:
        number(p.stage_rank[below(p.stage_rank.size())]);
        return "the rank of a stage";
    }
  }

  ProgramKind kind = ProgramKind::kTrainStep;

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  template <class Int>
  void number(Int& value) {
    const Int before = value;
    while (value == before) {
      switch (below(8)) {
        case 0:
          value = std::numeric_limits<Int>::max();
          break;
        case 1:
          value = std::numeric_limits<Int>::min();
          break;
        case 2:
          value = -1;
          break;
        case 3:
          value = static_cast<Int>(below(600));
          break;
        case 4:
          value = before + 1;
          break;
        default:
          value = static_cast<Int>(below(6));
          break;
      }
    }
  }
  template <class Enum>
  void choice(Enum& value, std::size_t count) {
    // One beyond the last enumerator is among the values.
    value = static_cast<Enum>(below(count + 1));
  }

  std::string instruction(Instruction& i) {
    const std::size_t field = below(18);
    switch (field) {
      case 0:
        choice(i.kind, kInstructionKindCount);
        break;
      case 1:
        choice(i.stream, kStreamCount);
        break;
      case 2:
        choice(i.purpose, 7);
        break;
      case 3:
        number(i.stage);
        break;
      case 4:
        number(i.chunk);
        break;
      case 5:
        number(i.micro_batch);
        break;
      case 6:
        number(i.unit.value);
        break;
      case 7:
        number(i.parameter_group.value);
        break;
      case 8:
        number(i.group.value);
        break;
      case 9:
        number(i.peer_stage);
        break;
      case 10:
        number(i.boundary);
        break;
      case 11:
        number(i.fuse);
        break;
      case 12:
        number(i.accesses.begin);
        break;
      case 13:
        number(i.accesses.end);
        break;
      case 14:
        number(i.waits.begin);
        break;
      case 15:
        number(i.waits.end);
        break;
      case 16:
        number(i.predicate.value);
        break;
      default:
        number(i.run_time_count.value);
        break;
    }
    return std::to_string(field);
  }

  std::string access(Access& a) {
    const std::size_t field = below(5);
    switch (field) {
      case 0:
        number(a.buffer.value);
        break;
      case 1:
        number(a.offset);
        break;
      case 2:
        number(a.bytes);
        break;
      case 3:
        choice(a.mode, 3);
        break;
      default:
        a.sharded = !a.sharded;
        break;
    }
    return std::to_string(field);
  }

  std::string buffer(Buffer& b) {
    const std::size_t field = below(10);
    switch (field) {
      case 0:
        choice(b.tier, kTierCount);
        break;
      case 1:
        choice(b.role, kBufferRoleCount);
        break;
      case 2:
        choice(b.region, 11);
        break;
      case 3:
        number(b.region_index);
        break;
      case 4:
        number(b.unit.value);
        break;
      case 5:
        number(b.micro_batch);
        break;
      case 6:
        number(b.parameter_group.value);
        break;
      case 7:
        b.persistent = !b.persistent;
        break;
      case 8:
        number(b.bytes);
        break;
      default:
        number(b.offset);
        if (below(2) == 0) b.offset = static_cast<std::int64_t>(below(64)) * kTensorAlignment;
        break;
    }
    return std::to_string(field);
  }

  std::mt19937_64 random_;
};

TEST(Verify, SurvivesAnyDamageAndAcceptsOnlyWhatIsHarmless) {
  int refused = 0;
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const TinyPlan plan = random_plan(3000 + seed);
    const Program original = lower_tiny(plan);
    for (std::uint64_t n = 0; n < 60; ++n) {
      Program damaged = original;
      Damage damage(seed * 1000 + n);
      const std::string what = damage.apply(damaged);
      if (!verify(damaged).empty()) {
        ++refused;
        continue;
      }
      ++accepted;
      for (int k = 0; k < kProgramKindCount; ++k) {
        const auto kind = static_cast<ProgramKind>(k);
        const exec::NullRunResult expected = exec::null_run(original, kind, 0);
        for (std::uint64_t schedule = 0; schedule < 3; ++schedule) {
          const exec::NullRunResult run = exec::null_run(damaged, kind, schedule);
          const std::string where =
              to_string(plan) + ", " + what + ", " + std::string(program_kind_name(kind));
          ASSERT_TRUE(run.clean()) << where << ": " << run.findings.front().message;
          ASSERT_TRUE(run.state == expected.state) << where;
        }
      }
    }
  }
  std::printf("damaged programs: %d refused, %d accepted and harmless\n", refused, accepted);
}

}  // namespace
}  // namespace bayplan::test
