// The fingerprint: equal input, equal value, on every machine; any difference in what is executed
// changes it, and nothing else does.
#include "planner/program/fingerprint.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tests/property/random_program.h"

namespace bayplan {
namespace {

Program tiny_program() {
  test::TinyPlan plan;
  plan.pp = 2;
  plan.dp = 2;
  plan.micro_batches = 2;
  plan.zero = 1;
  plan.tied = true;
  return test::lower_tiny(plan);
}

TEST(Fingerprint, IsStoredByLowerAndReproducible) {
  const Program p = tiny_program();
  EXPECT_NE(p.fingerprint, 0u);
  EXPECT_EQ(p.fingerprint, fingerprint(p));
  EXPECT_EQ(p.fingerprint, tiny_program().fingerprint);
}

TEST(Fingerprint, OfAHandMadeProgramIsTheSameOnEveryMachine) {
  Program p;
  p.rank_class = {0};
  p.stage_rank = {0};
  RankClass& c = p.classes.emplace_back();
  Buffer b;
  b.bytes = 256;
  b.offset = 512;
  c.buffers.push_back(b);
  c.programs[0].instructions.emplace_back().kind = InstructionKind::kEndStep;
  // Guards the serialisation: a new value invalidates stored traces and checkpoints, and then
  // kSerialisation has to change too.
  EXPECT_EQ(fingerprint(p), 6002224661529634215u);
}

TEST(Fingerprint, EveryFieldOfTheProgramCounts) {
  const Program original = tiny_program();
  const auto train = static_cast<std::size_t>(ProgramKind::kTrainStep);
  using Change = std::function<void(Program&)>;
  const std::vector<Change> changes = {
      [](Program& p) { p.mesh.ep = 2; },
      [](Program& p) { p.reduction_dtype = DType::kBf16; },
      [](Program& p) { p.rank_class[1] = 1; },
      [](Program& p) { p.stage_rank[0] = 1; },
      [](Program& p) { p.communication_groups[0].axes = 1; },
      [](Program& p) { p.communication_groups[0].name += "x"; },
      [](Program& p) { p.communication_groups[0].pp_coordinates.push_back(0); },
      [](Program& p) { p.parameter_groups[0].padded_elements += 1; },
      [](Program& p) { p.parameter_groups[0].shard_axes = 0; },
      [](Program& p) { p.parameter_groups[0].parameters[0].offset += 1; },
      [](Program& p) { p.parameter_groups[0].parameters[0].name += "x"; },
      [](Program& p) { p.classes[0].micro_batches += 1; },
      [](Program& p) { p.classes[0].stages.push_back(1); },
      [](Program& p) { p.classes[0].buffers[0].offset += 256; },
      [](Program& p) { p.classes[0].buffers[0].bytes += 1; },
      [](Program& p) { p.classes[0].buffers[0].tier = Tier::kHost; },
      [](Program& p) { p.classes[0].buffers[0].persistent = false; },
      [](Program& p) { p.classes[0].buffers[0].micro_batch = 1; },
      [=](Program& p) { p.classes[0].programs[train].instructions[3].stream = Stream::kHost; },
      [=](Program& p) { p.classes[0].programs[train].instructions[3].purpose = Purpose::kLoss; },
      [=](Program& p) { p.classes[0].programs[train].instructions[3].fuse = 77; },
      [=](Program& p) { p.classes[0].programs[train].instructions[3].predicate = BufferId(1); },
      [=](Program& p) {
        p.classes[0].programs[train].instructions[3].run_time_count = BufferId(1);
      },
      [=](Program& p) { p.classes[0].programs[train].accesses[0].sharded ^= true; },
      [=](Program& p) { p.classes[0].programs[train].accesses[0].offset += 1; },
      [=](Program& p) { p.classes[0].programs[train].waits[0] = InstructionId(0); },
      [=](Program& p) { p.classes[0].programs[train].waits.pop_back(); },
  };
  std::set<std::uint64_t> seen = {fingerprint(original)};
  for (std::size_t n = 0; n < changes.size(); ++n) {
    Program changed = original;
    changes[n](changed);
    EXPECT_TRUE(seen.insert(fingerprint(changed)).second) << "change " << n;
  }
}

TEST(Fingerprint, SpeedsHyperparametersAndNamesOfModelsDoNotCount) {
  Program p = tiny_program();
  p.job.learning_rate = 0.5;
  p.job.seed = 9;
  p.model = "another name";
  p.threads_per_rank = 8;
  EXPECT_EQ(fingerprint(p), tiny_program().fingerprint);
}

}  // namespace
}  // namespace bayplan
