#include "planner/program/lower.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/program/tiny_plans.h"

namespace bayplan {
namespace {

using test::tiny_cluster;
using test::tiny_graph;
using test::tiny_plan;
using test::tiny_program;
using test::TinyShape;

const InstructionList& train(const Program& p, std::size_t c) {
  return p.classes[c].programs[static_cast<std::size_t>(ProgramKind::kTrainStep)];
}

std::int64_t count(const InstructionList& list, InstructionKind kind, Purpose purpose) {
  return std::count_if(
      list.instructions.begin(), list.instructions.end(),
      [&](const Instruction& i) { return i.kind == kind && i.purpose == purpose; });
}

/// Most buffers of `role` alive at once for one unit, in issue order.
int most_in_flight(const RankClass& c, BufferRole role, UnitId unit) {
  const InstructionList& list = c.programs[static_cast<std::size_t>(ProgramKind::kTrainStep)];
  std::vector<bool> alive(c.buffers.size(), false);
  int most = 0;
  for (const Instruction& i : list.instructions) {
    for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
      const std::size_t b = list.accesses[static_cast<std::size_t>(a)].buffer.index();
      alive[b] = i.kind != InstructionKind::kRelease;
    }
    int now = 0;
    for (std::size_t b = 0; b < alive.size(); ++b) {
      now += alive[b] && c.buffers[b].role == role && c.buffers[b].unit == unit &&
             c.buffers[b].region == Region::kSavedForWeight;
    }
    most = std::max(most, now);
  }
  return most;
}

TEST(Lower, OneFOneBKeepsAtMostPMinusRMicroBatchesInFlight) {
  const Program p = tiny_program({.layers = 4, .pp = 4, .micro_batches = 6});
  // Stage r of p = 4 holds min(m, p - r); stages 0..2 each start with a block or the embedding.
  for (std::size_t r = 1; r < 3; ++r) {
    const RankClass& c = p.classes[r];
    UnitId block;
    for (std::size_t u = 0; u < p.units.size(); ++u) {
      if (p.units[u].stage == static_cast<std::int32_t>(r)) block = UnitId(u);
    }
    EXPECT_EQ(most_in_flight(c, BufferRole::kSaved, block), 4 - static_cast<int>(r))
        << "stage " << r;
  }
}

TEST(Lower, GPipeKeepsAllMicroBatchesInFlight) {
  const Program p = tiny_program({.layers = 2, .pp = 2, .micro_batches = 5, .schedule = "gpipe"});
  EXPECT_EQ(most_in_flight(p.classes[0], BufferRole::kSaved, UnitId(1)), 5);
}

TEST(Lower, ZeroOneShardsStateAndReplacesAllReduceByScatterAndGather) {
  const Program whole = tiny_program({.dp = 2, .zero = 0});
  const Program sharded = tiny_program({.dp = 2, .zero = 1});
  const auto groups = static_cast<std::int64_t>(whole.parameter_groups.size());
  EXPECT_EQ(count(train(whole, 0), InstructionKind::kAllReduce, Purpose::kGrads), groups);
  EXPECT_EQ(count(train(sharded, 0), InstructionKind::kAllReduce, Purpose::kGrads), 0);
  EXPECT_EQ(count(train(sharded, 0), InstructionKind::kReduceScatter, Purpose::kGrads), groups);
  EXPECT_EQ(count(train(sharded, 0), InstructionKind::kAllGather, Purpose::kParams), groups);
  auto moments = [](const Program& p) {
    std::int64_t bytes = 0;
    for (const Buffer& b : p.classes[0].buffers)
      bytes += b.role == BufferRole::kMoment1 ? b.bytes : 0;
    return bytes;
  };
  EXPECT_EQ(moments(whole), 2 * moments(sharded));
}

TEST(Lower, RecipesHaveTheDocumentedBytesPerParameter) {
  // fp32: weight 4 + gradient 4 + two moments 8 = 16; bf16 adds a 2-byte weight and keeps a
  // 4-byte master: 2 + 4 + 4 + 8 = 18.
  for (const auto& [compute, bytes_per_parameter] :
       {std::pair<DType, std::int64_t>{DType::kFp32, 16}, {DType::kBf16, 18}}) {
    const Program p = tiny_program({.compute = compute});
    std::int64_t padded = 0;
    for (const ParameterGroup& g : p.parameter_groups) padded += g.padded_elements;
    std::int64_t bytes = 0;
    for (const Buffer& b : p.classes[0].buffers)
      bytes += b.role <= BufferRole::kMoment2 ? b.bytes : 0;
    EXPECT_EQ(bytes, bytes_per_parameter * padded);
  }
}

TEST(Lower, OptimizersKeepTheDocumentedBytesPerParameter) {
  // Weight 4 + gradient 4, and per moment 4: Adam has two, SGD none, SGD with momentum one.
  for (const auto& [optimizer, bytes_per_parameter] :
       {std::pair<OptimizerKind, std::int64_t>{OptimizerKind::kAdam, 16},
        {OptimizerKind::kSgd, 8},
        {OptimizerKind::kSgdMomentum, 12}}) {
    const Program p = tiny_program({.optimizer = optimizer});
    std::int64_t padded = 0;
    for (const ParameterGroup& g : p.parameter_groups) padded += g.padded_elements;
    std::int64_t bytes = 0;
    for (const Buffer& b : p.classes[0].buffers)
      bytes += b.role <= BufferRole::kMoment2 ? b.bytes : 0;
    EXPECT_EQ(bytes, bytes_per_parameter * padded) << optimizer_spec(optimizer).name;
  }
}

TEST(Lower, TiedWeightLivesOnFirstAndLastStageAndIsCountedOnce) {
  const Program p = tiny_program({.layers = 2, .tied = true, .pp = 2, .micro_batches = 2});
  const auto tied = std::find_if(p.parameter_groups.begin(), p.parameter_groups.end(),
                                 [](const ParameterGroup& g) { return g.tied; });
  ASSERT_NE(tied, p.parameter_groups.end());
  EXPECT_EQ(tied->pp_coordinates, (std::vector<std::int32_t>{0, 1}));
  int norm_reads = 0;
  for (std::size_t c = 0; c < 2; ++c) {
    EXPECT_EQ(count(train(p, c), InstructionKind::kAllReduce, Purpose::kTiedGrads), 1);
    for (const Instruction& i : train(p, c).instructions) {
      if (i.kind != InstructionKind::kGradientNorm) continue;
      for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
        const Buffer& b =
            p.classes[c].buffers[train(p, c).accesses[static_cast<std::size_t>(a)].buffer.index()];
        norm_reads +=
            b.parameter_group.valid() && p.parameter_groups[b.parameter_group.index()].tied;
      }
    }
  }
  EXPECT_EQ(norm_reads, 1);
}

TEST(Lower, SameInputSameProgramAndSpeedsDoNotMatter) {
  const TinyShape shape{.layers = 3, .pp = 2, .dp = 2, .micro_batches = 3, .zero = 1};
  const ModelGraph graph = tiny_graph(shape);
  const Plan plan = tiny_plan(shape, graph);
  Cluster fast = tiny_cluster(4);
  fast.groups[0].device.memory_bandwidth = BytesPerSecond(9e12);
  const Program a = *lower(plan, graph, tiny_cluster(4));
  const Program b = *lower(plan, graph, fast);
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  EXPECT_EQ(a.classes[1].programs, b.classes[1].programs);
  Plan other = plan;
  other.schedule = "gpipe";
  EXPECT_NE(a.fingerprint, lower(other, graph, tiny_cluster(4))->fingerprint);
}

TEST(Lower, MixedHardwareSplitsRankClasses) {
  const TinyShape shape{.dp = 2, .micro_batches = 1};
  const ModelGraph graph = tiny_graph(shape);
  Cluster mixed = tiny_cluster(1);
  mixed.groups.push_back(mixed.groups[0]);
  const Program p = *lower(tiny_plan(shape, graph), graph, mixed);
  EXPECT_EQ(p.classes.size(), 2u);
  EXPECT_EQ(p.rank_class, (std::vector<std::int32_t>{0, 1}));
}

TEST(Lower, ArenaIsCloseToTheMostBytesAlive) {
  const Program p = tiny_program({.layers = 4, .pp = 2, .dp = 2, .micro_batches = 4, .zero = 1});
  for (const RankClass& c : p.classes) {
    std::int64_t live = 0;
    for (const Buffer& b : c.buffers)
      live += b.persistent ? round_up(b.bytes, kTensorAlignment) : 0;
    std::int64_t most = live;
    const InstructionList& list = c.programs[static_cast<std::size_t>(ProgramKind::kTrainStep)];
    std::vector<bool> alive(c.buffers.size(), false);
    for (const Instruction& i : list.instructions) {
      for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
        const std::size_t b = list.accesses[static_cast<std::size_t>(a)].buffer.index();
        if (c.buffers[b].persistent) continue;
        const bool now = i.kind != InstructionKind::kRelease;
        if (now != alive[b])
          live += (now ? 1 : -1) * round_up(c.buffers[b].bytes, kTensorAlignment);
        alive[b] = now;
      }
      most = std::max(most, live);
    }
    EXPECT_GE(c.arena_bytes[0], most);
    EXPECT_LE(static_cast<double>(c.arena_bytes[0]), 1.1 * static_cast<double>(most))
        << "fragmentation";
  }
}

struct Refusal {
  const char* code;
  const char* where;
  void (*spoil)(Plan&);
};

TEST(Lower, RefusesPlansThatMakeNoSense) {
  const TinyShape shape{.layers = 2, .pp = 2, .dp = 2, .micro_batches = 2};
  const ModelGraph graph = tiny_graph(shape);
  const Refusal refusals[] = {
      {"world-size", "plan/mesh", [](Plan& p) { p.mesh.dp = 3; }},
      {"unsupported-axis", "plan/mesh/tp", [](Plan& p) { p.mesh.tp = 2; }},
      {"bad-degree", "plan/mesh/pp", [](Plan& p) { p.mesh.pp = 0; }},
      {"bad-size", "plan/job/seq", [](Plan& p) { p.job.seq = 0; }},
      {"bad-size", "plan/job/micro_batch", [](Plan& p) { p.job.micro_batch = -4; }},
      {"sequence-too-long", "plan/job/seq", [](Plan& p) { p.job.seq = 17; }},
      {"batch-not-divisible", "plan/job/global_batch", [](Plan& p) { p.job.global_batch = 5; }},
      {"replica-batch", "plan/replicas/1/micro_batches",
       [](Plan& p) { p.replicas[1].micro_batches = 1; }},
      {"replica-count", "plan/replicas", [](Plan& p) { p.replicas.pop_back(); }},
      {"stage-count", "plan/stages", [](Plan& p) { p.stages.pop_back(); }},
      {"empty-stage", "plan/stages/0/unit_count", [](Plan& p) { p.stages[0].unit_count = 0; }},
      {"stage-gap", "plan/stages/1/first_unit", [](Plan& p) { p.stages[1].first_unit = 1; }},
      {"plan-for-another-model", "plan/stages", [](Plan& p) { p.stages[1].unit_count = 1; }},
      {"unsupported-zero", "plan/stages/0/zero", [](Plan& p) { p.stages[0].zero = 4; }},
      {"bad-dropout", "plan/job/dropout", [](Plan& p) { p.job.dropout = 1.0; }},
      {"too-large", "plan/job",
       [](Plan& p) {
         p.job.global_batch = std::int64_t{1} << 40;
         p.replicas.assign(2, {std::int64_t{1} << 39});
       }},
  };
  for (const Refusal& r : refusals) {
    Plan plan = tiny_plan(shape, graph);
    r.spoil(plan);
    const auto result = lower(plan, graph, tiny_cluster(4));
    ASSERT_FALSE(result.ok()) << r.code;
    EXPECT_EQ(result.error().code, r.code);
    EXPECT_EQ(result.error().where, r.where);
    EXPECT_FALSE(result.error().hint.empty());
  }
}

}  // namespace
}  // namespace bayplan
