// The numerical twin: layouts that should equal training in one process do.
#include <gtest/gtest.h>

#include "tests/executor/equivalence/tiny_run.h"

namespace bayplan {
namespace {

using test::largest_difference;
using test::tiny_program;
using test::TinyOutcome;
using test::TinyRun;
using test::TinyShape;
using test::train_tiny;

void expect_bitwise(const TinyOutcome& a, const TinyOutcome& b) {
  ASSERT_EQ(a.result.losses.size(), b.result.losses.size());
  for (std::size_t i = 0; i < a.result.losses.size(); ++i) {
    EXPECT_EQ(a.result.losses[i], b.result.losses[i]) << "step " << i;
    EXPECT_EQ(a.result.grad_norms[i], b.result.grad_norms[i]) << "step " << i;
  }
  EXPECT_EQ(a.result.state_hash, b.result.state_hash);
  EXPECT_FALSE(a.result.state_hash.empty());
}

class PipelineEquivalence : public ::testing::TestWithParam<DType> {};

TEST_P(PipelineEquivalence, EqualsOneProcessBitwise) {
  auto with = [&](int pp, std::string schedule, int chunks = 1) {
    return train_tiny({.shape = {.layers = 4,
                                 .pp = pp,
                                 .schedule = std::move(schedule),
                                 .chunks = chunks,
                                 .compute = GetParam(),
                                 .dropout = 0.1}});
  };
  const TinyOutcome single = with(1, "1f1b");
  // It trains: the loss falls below the uniform distribution's ln 97 by memorising nothing else
  // than token frequencies, and clipping is active at the start.
  EXPECT_EQ(single.result.losses.size(), 20u);
  EXPECT_GT(single.result.grad_norms.front(), 1.0);
  expect_bitwise(single, with(2, "gpipe"));
  expect_bitwise(single, with(2, "1f1b"));
  expect_bitwise(single, with(4, "1f1b"));
  for (const ScheduleSpec& spec : schedules()) {
    SCOPED_TRACE(spec.name);
    const int chunks = std::min(spec.max_chunks, 2);
    expect_bitwise(single, with(2, std::string(spec.name), chunks));
    expect_bitwise(single, with(1, std::string(spec.name), chunks));
  }
  expect_bitwise(single, with(3, "interleaved", 2));
  expect_bitwise(single, with(3, "zbv", 2));
  expect_bitwise(single, with(4, "zb-h2"));
}
INSTANTIATE_TEST_SUITE_P(Precisions, PipelineEquivalence,
                         ::testing::Values(DType::kFp32, DType::kBf16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

TEST(ZeroEquivalence, ZeroOneEqualsZeroBitwise) {
  for (const DType compute : {DType::kFp32, DType::kBf16}) {
    for (const int pp : {1, 2}) {
      for (const bool tied : {false, true}) {
        TinyShape shape{
            .layers = 4, .tied = tied, .pp = pp, .dp = 2, .compute = compute, .dropout = 0.1};
        TinyShape sharded = shape;
        sharded.zero = 1;
        SCOPED_TRACE(std::string(dtype_name(compute)) + " pp " + std::to_string(pp) +
                     (tied ? " tied" : ""));
        expect_bitwise(train_tiny({.shape = shape}), train_tiny({.shape = sharded}));
      }
    }
  }
}

/// Every choice that ZeRO leaves, against ZeRO 0 with the same grad-reduce.
TEST(ZeroEquivalence, EveryStageEqualsZeroBitwise) {
  for (const GradReduce reduce : {GradReduce::kStep, GradReduce::kMicroBatch}) {
    for (const bool tied : {false, true}) {
      TinyShape shape{.layers = 4,
                      .tied = tied,
                      .dp = 2,
                      .grad_reduce = reduce,
                      .compute = tied ? DType::kBf16 : DType::kFp32,
                      .dropout = 0.1};
      const TinyOutcome whole = train_tiny({.shape = shape, .steps = 4});
      const auto same = [&](int zero, int pp, std::string schedule, int chunks, Reshard reshard,
                            int prefetch) {
        TinyShape sharded = shape;
        sharded.zero = zero;
        sharded.pp = pp;
        sharded.schedule = std::move(schedule);
        sharded.chunks = chunks;
        sharded.reshard = reshard;
        sharded.prefetch = prefetch;
        SCOPED_TRACE("zero " + std::to_string(zero) + " pp " + std::to_string(pp) + " " +
                     sharded.schedule + (tied ? " tied" : ""));
        // A weight tied across stages is summed in another order than in one stage.
        if (tied && (pp > 1 || chunks > 1)) {
          sharded.zero = 0;
          const TinyOutcome piped = train_tiny({.shape = sharded, .steps = 4});
          sharded.zero = zero;
          expect_bitwise(piped, train_tiny({.shape = sharded, .steps = 4}));
        } else {
          expect_bitwise(whole, train_tiny({.shape = sharded, .steps = 4}));
        }
      };
      for (const int zero : {0, 1, 2, 3}) same(zero, 1, "1f1b", 1, Reshard::kUnit, 1);
      same(2, 2, "1f1b", 1, Reshard::kUnit, 1);
      same(3, 2, "zb-h1", 1, Reshard::kUnit, 2);
      same(3, 2, "zbv", 2, Reshard::kUnit, 0);
      same(3, 2, "breadth-first", 2, Reshard::kChunk, 1);
      same(3, 2, "interleaved", 2, Reshard::kStep, 1);
    }
  }
}

TEST(ZeroEquivalence, PipelineUnderZeroEqualsOneStageBitwise) {
  TinyShape shape{.layers = 4, .dp = 2, .zero = 1, .dropout = 0.1};
  TinyShape piped = shape;
  piped.pp = 2;
  expect_bitwise(train_tiny({.shape = shape}), train_tiny({.shape = piped}));
}

TEST(RecomputeEquivalence, EqualsKeepingEverythingBitwiseAndHoldsLess) {
  for (const bool llama : {false, true}) {
    TinyShape shape{.layers = 4, .llama = llama, .dropout = 0.1};
    const TinyOutcome kept = train_tiny({.shape = shape, .steps = 4});
    const auto peak = [](const TinyOutcome& o) {
      std::int64_t most = 0;
      for (const exec::MemoryReport& m : o.result.memory) {
        EXPECT_EQ(m.measured_bytes, m.predicted_bytes);
        most = std::max(most, m.measured_bytes);
      }
      return most;
    };
    shape.recompute = Recompute::kSelective;
    const TinyOutcome selective = train_tiny({.shape = shape, .steps = 4});
    shape.recompute = Recompute::kFull;
    const TinyOutcome full = train_tiny({.shape = shape, .steps = 4});
    expect_bitwise(kept, selective);
    expect_bitwise(kept, full);
    EXPECT_LT(peak(selective), peak(kept));
    EXPECT_LT(peak(full), peak(selective));
    shape.recompute_units = {2, 3};
    const TinyOutcome two = train_tiny({.shape = shape, .steps = 4});
    expect_bitwise(kept, two);
    EXPECT_LT(peak(full), peak(two));
    EXPECT_LT(peak(two), peak(kept));
    shape.recompute_units = {};
    for (const char* schedule : {"1f1b", "zbv", "zb-h2"}) {
      shape.pp = 2;
      shape.schedule = schedule;
      shape.chunks = find_schedule(schedule)->min_chunks;
      expect_bitwise(kept, train_tiny({.shape = shape, .steps = 4}));
    }
  }
}

TEST(OffloadEquivalence, EqualsTheDeviceBitwiseOnEveryTier) {
  // Enough blocks and micro-batches that what is saved is more than the buffers in transit.
  for (const DType compute : {DType::kFp32, DType::kBf16}) {
    for (const int zero : {0, 1, 2, 3}) {
      TinyShape shape{.layers = 10,
                      .dp = 2,
                      .zero = zero,
                      .grad_reduce = GradReduce::kMicroBatch,
                      .schedule = "gpipe",
                      .compute = compute,
                      .dropout = 0.1};
      const TinyOutcome device = train_tiny({.shape = shape, .global_batch = 8, .steps = 4});
      const auto bytes = [](const TinyOutcome& o, Tier tier) {
        std::int64_t most = 0;
        for (const exec::MemoryReport& m : o.result.memory) {
          EXPECT_EQ(m.measured_bytes, m.predicted_bytes) << tier_name(m.tier);
          if (m.tier == tier) most = std::max(most, m.measured_bytes);
        }
        return most;
      };
      EXPECT_EQ(bytes(device, Tier::kHost), 0);
      for (const Offload offload :
           {Offload{true, false}, Offload{false, true}, Offload{true, true}}) {
        shape.offload = offload;
        const TinyOutcome host = train_tiny({.shape = shape, .global_batch = 8, .steps = 4});
        expect_bitwise(device, host);
        EXPECT_LT(bytes(host, Tier::kDevice), bytes(device, Tier::kDevice));
        EXPECT_GT(bytes(host, Tier::kHost), 0);
      }
      for (const char* schedule : {"1f1b", "zbv", "zb-h2"}) {
        TinyShape piped = shape;
        piped.pp = 2;
        piped.schedule = schedule;
        piped.chunks = find_schedule(schedule)->min_chunks;
        piped.recompute = Recompute::kSelective;
        expect_bitwise(device, train_tiny({.shape = piped, .global_batch = 8, .steps = 4}));
      }
    }
  }
}

class OptimizerEquivalence : public ::testing::TestWithParam<OptimizerKind> {};

TEST_P(OptimizerEquivalence, LayoutsAgreeBitwise) {
  for (const DType compute : {DType::kFp32, DType::kBf16}) {
    SCOPED_TRACE(dtype_name(compute));
    const auto with = [&](int pp, int dp, int zero, Offload offload = {}) {
      return train_tiny({.shape = {.layers = 4,
                                   .pp = pp,
                                   .dp = dp,
                                   .zero = zero,
                                   .offload = offload,
                                   .compute = compute,
                                   .dropout = 0.1,
                                   .optimizer = GetParam()}});
    };
    expect_bitwise(with(1, 1, 0), with(2, 1, 0));
    const TinyOutcome whole = with(1, 2, 0);
    expect_bitwise(whole, with(1, 2, 1));
    expect_bitwise(whole, with(2, 2, 1));
    expect_bitwise(whole, with(1, 2, 3));
    const bool has_state = compute == DType::kBf16 || optimizer_spec(GetParam()).moment1;
    if (has_state) expect_bitwise(whole, with(2, 2, 2, {.optimizer = true}));
  }
}

TEST_P(OptimizerEquivalence, MeasuresThePredictedMemory) {
  for (const DType compute : {DType::kFp32, DType::kBf16, DType::kFp64}) {
    for (const auto& [pp, dp, zero] : {std::tuple{1, 1, 0}, {1, 2, 1}, {2, 2, 1}}) {
      const TinyOutcome outcome = train_tiny({.shape = {.layers = 4,
                                                        .pp = pp,
                                                        .dp = dp,
                                                        .zero = zero,
                                                        .compute = compute,
                                                        .optimizer = GetParam()},
                                              .steps = 3});
      ASSERT_EQ(outcome.result.memory.size(), static_cast<std::size_t>(pp * dp));
      for (const exec::MemoryReport& m : outcome.result.memory) {
        EXPECT_EQ(m.measured_bytes, m.predicted_bytes) << dtype_name(compute) << " " << m.rank;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerEquivalence,
                         ::testing::Values(OptimizerKind::kAdamW, OptimizerKind::kAdam,
                                           OptimizerKind::kSgd, OptimizerKind::kSgdMomentum),
                         [](const auto& param) {
                           const std::string name(optimizer_spec(param.param).name);
                           return name == "sgd-momentum" ? "sgd_momentum" : name;
                         });

TEST(ThreadEquivalence, OneThreadEqualsTwoBitwise) {
  for (const DType compute : {DType::kFp32, DType::kBf16}) {
    SCOPED_TRACE(dtype_name(compute));
    const TinyShape shape{.layers = 4, .compute = compute, .dropout = 0.1};
    expect_bitwise(train_tiny({.shape = shape, .threads = 1}),
                   train_tiny({.shape = shape, .threads = 2}));
  }
}

TEST(ToleranceClasses, TiedEmbeddingsAcrossStagesAgreeInFp64) {
  TinyShape shape{.layers = 4, .tied = true, .compute = DType::kFp64, .dropout = 0.1};
  const TinyOutcome single = train_tiny({.shape = shape, .dump = true});
  shape.pp = 2;
  const TinyOutcome piped = train_tiny({.shape = shape, .dump = true});
  EXPECT_LT(largest_difference(single.state, piped.state), 1e-9);
  for (std::size_t i = 0; i < single.result.losses.size(); ++i) {
    EXPECT_NEAR(single.result.losses[i], piped.result.losses[i], 1e-9);
  }
}

TEST(ToleranceClasses, TwoReplicasAgreeWithOneInFp64) {
  TinyShape shape{.layers = 4, .compute = DType::kFp64, .dropout = 0.1};
  const TinyOutcome one = train_tiny({.shape = shape, .dump = true});
  shape.dp = 2;
  const TinyOutcome two = train_tiny({.shape = shape, .dump = true});
  EXPECT_LT(largest_difference(one.state, two.state), 1e-9);
  for (std::size_t i = 0; i < one.result.losses.size(); ++i) {
    EXPECT_NEAR(one.result.losses[i], two.result.losses[i], 1e-9);
  }
}

TEST(MeasuredMemory, EqualsThePredictionOnEveryRankAndTier) {
  for (const DType compute : {DType::kFp32, DType::kBf16, DType::kFp64}) {
    for (const ScheduleSpec& spec : schedules()) {
      for (const auto& [pp, dp, zero] : {std::tuple{1, 1, 0},
                                         {2, 1, 0},
                                         {1, 2, 1},
                                         {2, 2, 1},
                                         {4, 1, 0},
                                         {2, 2, 0},
                                         {1, 2, 3},
                                         {2, 2, 2},
                                         {2, 2, 3}}) {
        const int chunks = pp == 4 ? spec.min_chunks : std::min(spec.max_chunks, 2);
        if (pp * chunks > 6) continue;
        SCOPED_TRACE(std::string(dtype_name(compute)) + " " + std::string(spec.name) + " pp" +
                     std::to_string(pp) + " dp" + std::to_string(dp) + " zero" +
                     std::to_string(zero));
        const TinyOutcome outcome = train_tiny(
            {.shape = {.layers = 4,
                       .tied = pp == 2,
                       .pp = pp,
                       .dp = dp,
                       .zero = zero,
                       .grad_reduce = zero >= 2 ? GradReduce::kMicroBatch : GradReduce::kStep,
                       .schedule = std::string(spec.name),
                       .chunks = chunks,
                       .compute = compute,
                       .dropout = 0.1},
             .steps = 2});
        // Nothing is offloaded, so device memory is the only tier with an arena.
        ASSERT_EQ(outcome.result.memory.size(), static_cast<std::size_t>(pp * dp));
        for (const exec::MemoryReport& m : outcome.result.memory) {
          EXPECT_EQ(m.measured_bytes, m.predicted_bytes)
              << "rank " << m.rank << " " << tier_name(m.tier);
          EXPECT_LE(m.workspace_used_bytes, m.workspace_declared_bytes);
          EXPECT_GT(m.measured_bytes, 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace bayplan
