// Every schedule in every shape becomes a program that verify() accepts: no deadlock under
// rendezvous semantics, also with one communication queue, no race, no overlap, sums in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "planner/program/verify.h"
#include "planner/schedule/schedule.h"
#include "tests/property/random_program.h"

namespace bayplan::test {
namespace {

class ScheduleProgram : public ::testing::TestWithParam<ScheduleSpec> {};

TEST_P(ScheduleProgram, IsVerifiedInEveryShape) {
  const ScheduleSpec& spec = GetParam();
  for (int p = 1; p <= 16; ++p) {
    for (int v = spec.min_chunks; v <= std::min(spec.max_chunks, 4); ++v) {
      for (const int m : std::set<int>{1, 2, 3, 5, 8, p, 2 * p - 1, 2 * p, 2 * p + 1, 31, 64}) {
        TinyPlan plan;
        plan.pp = p;
        plan.schedule = spec.name;
        plan.chunks = v;
        plan.micro_batches = m;
        plan.layers = std::max(1, p * v - 2);
        const std::vector<VerifyFinding> findings = verify(lower_tiny(plan));
        ASSERT_TRUE(findings.empty()) << to_string(plan) << ": " << findings.front().message;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, ScheduleProgram,
                         ::testing::ValuesIn(schedules().begin(), schedules().end()),
                         [](const auto& param) {
                           std::string name(param.param.name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name == "1f1b" ? std::string("one_f_one_b") : name;
                         });

}  // namespace
}  // namespace bayplan::test
