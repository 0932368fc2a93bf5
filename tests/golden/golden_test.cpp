// Golden files: exact text of small programs, readable as documentation. After a change that is
// meant to move them, run the tests once with BAYPLAN_UPDATE_GOLDEN=1 and read the difference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "planner/program/text.h"
#include "tests/property/random_program.h"

namespace bayplan {
namespace {

using test::lower_tiny;
using test::TinyPlan;

std::string list(const Program& program, int rank_class, ProgramKind kind) {
  return "# class " + std::to_string(rank_class) + ", " + std::string(program_kind_name(kind)) +
         "\n" + to_text(program, rank_class, kind);
}

void expect_golden(const std::string& name, const std::string& text) {
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 60) << "a golden file is documentation";
  const std::string path = std::string(BAYPLAN_TEST_DATA_DIR) + "/../golden/" + name;
  const char* update = std::getenv("BAYPLAN_UPDATE_GOLDEN");
  if (update != nullptr && std::string(update) == "1") {
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path << " is missing";
  std::ostringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << "differs from tests/golden/" << name;
}

TEST(Golden, OneFOneBOnTwoStages) {
  TinyPlan plan;
  plan.pp = 2;
  plan.micro_batches = 2;
  plan.layers = 1;
  const Program program = lower_tiny(plan);
  expect_golden(
      "one_f_one_b_pp2.txt",
      "# 1F1B, 2 stages, 2 micro-batches; units: embedding and block | head.\n"
      "# Stage 0 warms up with one forward. Stage 1 receives the second activation before it\n"
      "# computes the first backward, as it is there by then.\n" +
          list(program, 0, ProgramKind::kTrainStep) + list(program, 1, ProgramKind::kTrainStep));
}

TEST(Golden, ZeroOneOnTwoReplicas) {
  TinyPlan plan;
  plan.dp = 2;
  plan.zero = 1;
  plan.layers = 1;
  const Program program = lower_tiny(plan);
  expect_golden("zero1_dp2.txt",
                "# ZeRO 1, 2 replicas, 1 stage, 1 micro-batch; units: embedding, block, head.\n"
                "# Reductions start while earlier units still run backward; after the norm, each\n"
                "# rank updates its slice and gathers the others'.\n" +
                    list(program, 0, ProgramKind::kTrainStep) +
                    list(program, 0, ProgramKind::kEvalStep) +
                    list(program, 0, ProgramKind::kSave));
}

TEST(Golden, BuffersOfTheLastStage) {
  TinyPlan plan;
  plan.pp = 2;
  plan.micro_batches = 2;
  plan.layers = 1;
  const std::string text = to_text(lower_tiny(plan));
  const std::size_t begin = text.find("class 1");
  expect_golden("buffers_pp2_last_stage.txt",
                "# Buffers of the last stage of one_f_one_b_pp2.txt. Persistent ones come first;\n"
                "# micro-batch 1 reuses bytes that micro-batch 0 has released.\n" +
                    text.substr(begin, text.find("program load", begin) - begin));
}

}  // namespace
}  // namespace bayplan
