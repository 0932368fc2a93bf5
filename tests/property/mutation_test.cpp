// verify() is as strong as playing the program: whatever deadlocks, races or misreads under some
// schedule of the null executor is refused, for a reason that fits what was broken.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "executor/null_run.h"
#include "planner/program/text.h"
#include "planner/program/verify.h"
#include "tests/property/mutators.h"
#include "tests/property/random_program.h"

namespace bayplan::test {
namespace {

constexpr int kPrograms = 80;
constexpr int kMutantsPerMutator = 4;  // per program
constexpr std::uint64_t kSchedules = 6;

/// State at the end of a sound program, which is the same under every schedule.
std::vector<std::uint64_t> expected_state(const Program& program, ProgramKind kind) {
  const exec::NullRunResult run = exec::null_run(program, kind, 0);
  EXPECT_TRUE(run.clean());
  return run.state;
}

/// What went wrong under some schedule, or nullopt.
std::optional<std::string> misbehaviour(const Mutant& mutant,
                                        const std::vector<std::uint64_t>& expected) {
  for (std::uint64_t seed = 0; seed < kSchedules; ++seed) {
    exec::NullRunOptions options;
    options.one_communication_queue = seed % 3 == 2;
    const exec::NullRunResult run = exec::null_run(mutant.program, mutant.kind, seed, options);
    if (!run.clean()) return std::string(exec::null_fault_name(run.findings.front().fault));
    if (run.state != expected) return "other values";
  }
  return std::nullopt;
}

struct Count {
  int made = 0;
  int misbehave = 0;
  int refused = 0;           // of those that misbehave
  int refused_harmless = 0;  // of those that do not
  std::map<std::string, int> faults;
  std::map<std::string, int> reasons;  // first finding
};

TEST(Verify, RefusesEveryMutantThatMisbehavesForTheRightReason) {
  std::map<std::string_view, Count> counts;
  int misbehaving = 0;
  for (std::uint64_t seed = 0; seed < kPrograms; ++seed) {
    const TinyPlan plan = random_plan(1000 + seed);
    const Program program = lower_tiny(plan);
    const std::map<ProgramKind, std::vector<std::uint64_t>> expected = {
        {ProgramKind::kTrainStep, expected_state(program, ProgramKind::kTrainStep)},
        {ProgramKind::kEvalStep, expected_state(program, ProgramKind::kEvalStep)}};
    std::mt19937_64 random(seed);
    for (const Mutator& mutator : mutators()) {
      Count& count = counts[mutator.name];
      for (int n = 0; n < kMutantsPerMutator; ++n) {
        const std::optional<Mutant> mutant = mutator.mutate(program, random);
        if (!mutant) continue;
        ++count.made;
        const std::vector<VerifyFinding> findings = verify(mutant->program);
        const auto fault = misbehaviour(*mutant, expected.at(mutant->kind));
        if (!fault) {
          count.refused_harmless += findings.empty() ? 0 : 1;
          continue;
        }
        ++misbehaving;
        ++count.misbehave;
        ++count.faults[*fault];
        const std::string where = std::string(mutator.name) + ", " + to_string(plan) + ", " +
                                  std::string(program_kind_name(mutant->kind)) + ", " +
                                  mutant->what;
        ASSERT_FALSE(findings.empty()) << where << ": accepted, but: " << *fault;
        const bool right =
            std::any_of(findings.begin(), findings.end(), [&](const VerifyFinding& f) {
              return std::find(mutator.reasons.begin(), mutator.reasons.end(), f.violation) !=
                     mutator.reasons.end();
            });
        ++count.reasons[std::string(violation_name(findings.front().violation))];
        EXPECT_TRUE(right) << where << ": " << *fault << ", refused as "
                           << violation_name(findings.front().violation) << ": "
                           << findings.front().message;
        ++count.refused;
      }
    }
  }
  std::printf("%-20s %6s %10s %8s %18s\n", "mutator", "made", "misbehave", "refused",
              "refused, harmless");
  for (const Mutator& mutator : mutators()) {
    const Count& c = counts[mutator.name];
    std::printf("%-20s %6d %10d %8d %18d ", std::string(mutator.name).c_str(), c.made, c.misbehave,
                c.refused, c.refused_harmless);
    for (const auto& [fault, n] : c.faults) std::printf(" %s:%d", fault.c_str(), n);
    std::printf(" |");
    for (const auto& [reason, n] : c.reasons) std::printf(" %s:%d", reason.c_str(), n);
    std::printf("\n");
    EXPECT_GE(c.misbehave, 50) << mutator.name;
  }
  EXPECT_GE(misbehaving, 500);
}

TEST(Verify, AcceptsEveryProgramThatLowerMakes) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const TinyPlan plan = random_plan(seed);
    const std::vector<VerifyFinding> findings = verify(lower_tiny(plan));
    EXPECT_TRUE(findings.empty()) << to_string(plan) << ": "
                                  << violation_name(findings.front().violation) << ": "
                                  << findings.front().message;
  }
}

TEST(Verify, AcceptsTiedWeightsInTwoStagesOfOneRank) {
  for (const char* schedule : {"zbv", "dualpipev", "interleaved"}) {
    TinyPlan plan{.pp = 2, .dp = 2, .micro_batches = 5, .zero = 1, .schedule = schedule};
    plan.chunks = 2;
    plan.tied = true;
    plan.layers = 3;
    EXPECT_TRUE(verify(lower_tiny(plan)).empty()) << schedule;
    plan.pp = 1;
    EXPECT_TRUE(verify(lower_tiny(plan)).empty()) << schedule;
  }
}

}  // namespace
}  // namespace bayplan::test
