// The exhaustive search: its space, its choice, and what it needs of memory.
#include "planner/search/enumerate.h"

#include <gtest/gtest.h>

#include <set>

#include "models/build_model.h"
#include "models/clusters.h"
#include "models/registry.h"
#include "planner/program/lower.h"

namespace bayplan {
namespace {

struct Case {
  ModelGraph graph = build_model(
      resolve_model("gpt:hidden=32,layers=4,heads=2,vocab=97,tied=no")->architecture, false);
  Cluster cluster = *resolve_cluster("4xh100-sxm-80gb");
  Plan base;

  Case() {
    base.model = "tiny";
    base.cluster = "4xh100-sxm-80gb";
    base.job.seq = 16;
    base.job.global_batch = 8;
  }
};

std::string key(const Plan& p) {
  return std::to_string(p.mesh.pp) + "/" + std::to_string(p.mesh.dp) + "/" +
         std::to_string(p.job.micro_batch) + "/" + std::to_string(p.stages.front().zero) + "/" +
         p.schedule + "/" + std::to_string(p.chunks_per_rank);
}

TEST(EnumerateLayouts, ListsEveryDistinctLayoutOnce) {
  const Case c;
  const auto plans = enumerate_layouts(c.base, {}, c.graph, 4);
  ASSERT_TRUE(plans.ok());
  std::set<std::string> keys;
  for (const Plan& plan : *plans) keys.insert(key(plan));
  EXPECT_EQ(keys.size(), plans->size());
  // 6 units: pp 2 takes up to 2 chunks, hence all 8 schedules once; pp 4 takes 1 chunk, hence 4.
  // GPipe is left out with one micro-batch.
  // pp 1, dp 4: 2 samples a replica, b = 1, 2; ZeRO 0 to 3; one schedule     -> 8
  // pp 2, dp 2: 4 samples, b = 1, 2, 4; ZeRO 0 to 3; 8, 8 and 7 schedules    -> 32 + 32 + 28
  // pp 4, dp 1: 8 samples, b = 1, 2, 4, 8; ZeRO 0; 4, 4, 4 and 3 schedules   -> 4 + 4 + 4 + 3
  EXPECT_EQ(plans->size(), 8u + 92u + 15u);
  EXPECT_TRUE(keys.contains("2/2/1/1/gpipe/1"));
  EXPECT_TRUE(keys.contains("2/2/1/1/zbv/2"));
  EXPECT_TRUE(keys.contains("4/1/1/0/zb-h1/1"));
  EXPECT_FALSE(keys.contains("4/1/1/1/1f1b/1"));
  EXPECT_FALSE(keys.contains("4/1/1/0/interleaved/2"));
}

TEST(EnumerateLayouts, WhatIsGivenIsFixed) {
  const Case c;
  SearchSpace space;
  space.pp = 2;
  space.dp = 2;
  space.micro_batch = 2;
  space.zero = 1;
  space.schedule = "gpipe";
  const auto plans = enumerate_layouts(c.base, space, c.graph, 4);
  ASSERT_TRUE(plans.ok());
  ASSERT_EQ(plans->size(), 1u);
  EXPECT_EQ(key(plans->front()), "2/2/2/1/gpipe/1");
  EXPECT_EQ(plans->front().replicas, (std::vector<ReplicaPlan>{{2}, {2}}));
}

TEST(EnumerateLayouts, ImpossibleRequestsSayWhy) {
  Case c;
  SearchSpace space;
  space.pp = 3;
  EXPECT_EQ(enumerate_layouts(c.base, space, c.graph, 4).error().code, "world-size");
  space = {};
  space.micro_batch = 3;
  EXPECT_EQ(enumerate_layouts(c.base, space, c.graph, 4).error().code, "batch-not-divisible");
  space.micro_batch = 1;
  space.dp = 4;
  c.base.job.global_batch = 6;
  const auto plans = enumerate_layouts(c.base, space, c.graph, 4);
  ASSERT_FALSE(plans.ok());
  EXPECT_EQ(plans.error().hint, "use a global batch of 8");
}

TEST(SearchLayouts, TakesTheFastestThatFits) {
  const Case c;
  // A pretended clock: more pipeline stages are faster, ties go to the layout with more room.
  const ScoringCallback score = [](const Program& p) -> Result<Seconds> {
    return Seconds(1.0 / p.mesh.pp);
  };
  const auto found = search_layouts(c.base, {}, c.graph, c.cluster, score);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->evaluated.size(), 115u);
  ASSERT_TRUE(found->best.has_value());
  const Evaluated& best = found->evaluated[*found->best];
  EXPECT_EQ(best.plan.mesh.pp, 4);
  for (const Evaluated& e : found->evaluated) {
    EXPECT_TRUE(e.scored && e.fits);
    if (e.plan.mesh.pp == 4) {
      EXPECT_LE(e.room, best.room) << key(e.plan);
    }
  }
}

TEST(SearchLayouts, WhatDoesNotFitIsNotScored) {
  Case c;
  c.cluster.groups[0].device.memory = c.cluster.groups[0].device.context + Bytes(1);
  int scored = 0;
  const auto found =
      search_layouts(c.base, {}, c.graph, c.cluster, [&](const Program&) -> Result<Seconds> {
        ++scored;
        return Seconds(1.0);
      });
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->best.has_value());
  EXPECT_EQ(scored, 0);
  for (const Evaluated& e : found->evaluated)
    EXPECT_LE(e.room, found->evaluated[found->roomiest].room);
}

TEST(SearchLayouts, MarginCountsAsUsed) {
  Case c;
  SearchSpace space;
  space.pp = 2;
  const auto free = search_layouts(c.base, space, c.graph, c.cluster, {});
  ASSERT_TRUE(free.ok());
  space.margin = free->evaluated[free->roomiest].room + Bytes(1);
  const auto tight = search_layouts(c.base, space, c.graph, c.cluster, {});
  ASSERT_TRUE(tight.ok());
  EXPECT_TRUE(free->best.has_value());
  EXPECT_FALSE(tight->best.has_value());
}

TEST(SearchLayouts, ErrorsOfTheScoreEndTheSearch) {
  const Case c;
  const auto found =
      search_layouts(c.base, {}, c.graph, c.cluster, [](const Program&) -> Result<Seconds> {
        return Error{"deadlock", "", "", ""};
      });
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, "deadlock");
}

TEST(SearchLayouts, ReportsWhyNothingCanBeLowered) {
  Case c;
  c.base.job.seq = 5000;  // the model has 1024 positions
  const auto found = search_layouts(c.base, {}, c.graph, c.cluster, {});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, "sequence-too-long");
}

TEST(MemoryNeeds, TermsAndContextAddUpToTheDeviceBytes) {
  const Case c;
  const auto plans = enumerate_layouts(c.base, {}, c.graph, 4);
  for (const Plan& plan : *plans) {
    const auto program = lower(plan, c.graph, c.cluster);
    ASSERT_TRUE(program.ok()) << key(plan);
    int ranks = 0;
    for (const RankMemoryNeed& need : memory_needs(*program, c.cluster)) {
      std::int64_t sum = 0;
      for (const MemoryTerm& term : need.terms) {
        sum += term.bytes.value;
        EXPECT_GE(term.bytes.value, 0) << key(plan) << " " << term.name;
      }
      EXPECT_EQ(sum, need.device.value) << key(plan);
      EXPECT_EQ(need.device, need.allocated + c.cluster.groups[0].device.context);
      ranks += need.count;
    }
    EXPECT_EQ(ranks, program->world_size());
  }
}

TEST(MemoryNeeds, HostArenasOfANodeShareItsMemory) {
  const Case c;
  Plan plan = enumerate_layouts(c.base, {}, c.graph, 4)->front();
  Program program = *lower(plan, c.graph, c.cluster);
  for (RankClass& rank_class : program.classes) {
    rank_class.arena_bytes[static_cast<std::size_t>(Tier::kHost)] =
        c.cluster.groups[0].host_memory.value / 4;
  }
  EXPECT_TRUE(fits_host(memory_needs(program, c.cluster), program, c.cluster));
  program.classes[0].arena_bytes[static_cast<std::size_t>(Tier::kHost)] += 1;
  EXPECT_FALSE(fits_host(memory_needs(program, c.cluster), program, c.cluster));
}

}  // namespace
}  // namespace bayplan
