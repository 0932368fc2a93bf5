#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "models/clusters.h"
#include "simulator/cost/communication_cost.h"
#include "simulator/cost/cost_model.h"
#include "simulator/cost/program_flops.h"
#include "simulator/engine/simulate.h"
#include "tests/unit/simulator/tiny_costs.h"

namespace bayplan::sim {
namespace {

using bayplan::test::lower_tiny;

constexpr Link kLink{Seconds(1e-6), BytesPerSecond(1e9), Provenance::kSpecification};

CommunicationCall call_of(InstructionKind kind, std::int64_t bytes, const std::vector<int>& ranks) {
  return {kind, Purpose::kGrads, BufferRole::kGradients, bytes, ranks};
}

double seconds(const CommunicationCost& cost) { return to_seconds(cost.latency + cost.work).value; }

TEST(LinkCost, RingFormulas) {
  const std::vector<int> four{0, 1, 2, 3};
  const std::vector<int> two{0, 1};
  // Message: α + bytes/β = 1 µs + 1 ms.
  EXPECT_NEAR(seconds(link_cost(kLink, call_of(InstructionKind::kSendActivation, 1'000'000, two))),
              1.001e-3, 1e-12);
  // Ring of four: three rounds of α and a quarter of the buffer each.
  EXPECT_NEAR(seconds(link_cost(kLink, call_of(InstructionKind::kAllGather, 4'000'000, four))),
              3 * 1.001e-3, 1e-12);
  EXPECT_NEAR(seconds(link_cost(kLink, call_of(InstructionKind::kReduceScatter, 4'000'000, four))),
              3 * 1.001e-3, 1e-12);
  EXPECT_NEAR(seconds(link_cost(kLink, call_of(InstructionKind::kAllReduce, 4'000'000, four))),
              6 * 1.001e-3, 1e-12);
}

TEST(LinkCost, OneMemberCostsNothing) {
  const std::vector<int> one{5};
  EXPECT_EQ(seconds(link_cost(kLink, call_of(InstructionKind::kAllReduce, 4'000'000, one))), 0.0);
}

TEST(SlowestLink, LeavesTheNodeWhenAnyMemberDoes) {
  Cluster cluster = test::cluster_of(DeviceClass::kGpu, 2);
  cluster.groups[0].nodes = 2;
  cluster.groups[0].intra_node = {Seconds(1e-6), BytesPerSecond(100e9), Provenance::kSpecification};
  cluster.inter_node = {Seconds(5e-6), BytesPerSecond(10e9), Provenance::kSpecification};
  EXPECT_EQ(slowest_link(cluster, std::vector<int>{0, 1}).bandwidth.value, 100e9);
  EXPECT_EQ(slowest_link(cluster, std::vector<int>{0, 2}).bandwidth.value, 10e9);
  EXPECT_EQ(slowest_link(cluster, std::vector<int>{0, 2}).latency.value, 5e-6);
}

TEST(SharedMemoryCost, CopiesAndSums) {
  Calibration c;
  c.copy_bytes = 1e9;
  c.memory_slowdown = 2.0;
  const StreamRates rates{DType::kFp32, 1e9, 1e9, 3e9};
  const std::vector<int> two{0, 1};
  // Two members, 2 MB: each sums a slice of 1 MB: 3 MB touched at 3 GB/s = 1 ms while all cores are
  // busy, half of that alone.
  const CommunicationCost scatter =
      shared_memory_cost(c, rates, call_of(InstructionKind::kReduceScatter, 2'000'000, two));
  EXPECT_NEAR(to_seconds(scatter.work).value * scatter.slowdown, 1e-3, 1e-9);
  EXPECT_NEAR(to_seconds(scatter.work).value, 0.5e-3, 1e-9);
  // all_gather copies the other's 1 MB: 1 ms. all_reduce does both.
  const CommunicationCost gather =
      shared_memory_cost(c, rates, call_of(InstructionKind::kAllGather, 2'000'000, two));
  EXPECT_NEAR(to_seconds(gather.work).value * gather.slowdown, 1e-3, 1e-9);
  const CommunicationCost reduce =
      shared_memory_cost(c, rates, call_of(InstructionKind::kAllReduce, 2'000'000, two));
  EXPECT_NEAR(to_seconds(reduce.work).value * reduce.slowdown, 2e-3, 1e-9);
  // The receiver of a message copies it.
  const CommunicationCost message =
      shared_memory_cost(c, rates, call_of(InstructionKind::kSendGradient, 1'000'000, two));
  EXPECT_TRUE(message.receiver_only);
  EXPECT_NEAR(to_seconds(message.work).value * message.slowdown, 1e-3, 1e-9);
}

TEST(ProgramFlops, DoNotDependOnTheLayout) {
  // The model's work is the same however it is split; recompute is not used, so nothing is extra.
  const ProgramFlops one =
      program_flops(lower_tiny({.micro_batches = 4, .layers = 4}), ProgramKind::kTrainStep);
  const ProgramFlops pipeline = program_flops(
      lower_tiny({.pp = 4, .micro_batches = 4, .layers = 4}), ProgramKind::kTrainStep);
  EXPECT_GT(one.model.value, 0.0);
  EXPECT_DOUBLE_EQ(one.model.value, pipeline.model.value);
  EXPECT_DOUBLE_EQ(one.executed.value, one.model.value);
}

TEST(AnalyticCosts, GpusArePredictedFromTheirSpecification) {
  const Program program =
      lower_tiny({.pp = 2, .dp = 2, .micro_batches = 4, .zero = 1, .layers = 2});
  const auto cluster = resolve_cluster("4xa100-sxm-80gb");
  ASSERT_TRUE(cluster.ok());
  const auto result = simulate(program, *cluster, analytic_costs(program, *cluster));
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->provenance, Provenance::kSpecification);
  EXPECT_GT(result->step_time.mid.value, 0.0);
  EXPECT_GT(result->mfu, 0.0);
  EXPECT_LT(result->mfu, 1.0);
  EXPECT_DOUBLE_EQ(result->mfu, result->hfu);
}

/// A machine where everything runs at one rate.
std::shared_ptr<const Calibration> flat_calibration(int cores) {
  auto c = std::make_shared<Calibration>();
  c->cores = cores;
  for (int k = 0; k < kOperatorKindCount; ++k) {
    for (int p = 0; p < 3; ++p) {
      c->operators.push_back({static_cast<OperatorKind>(k),
                              static_cast<Phase>(p),
                              DType::kFp32,
                              {{{1}, {1}, {1}}},
                              {1e9},
                              {1e9}});
    }
  }
  c->streams = {{DType::kFp32, 1e9, 1e9, 1e9}};
  c->copy_bytes = c->fill_bytes = 1e9;
  c->crowding.assign(static_cast<std::size_t>(cores), 1.0);
  c->crowding[0] = 0.0;
  return c;
}

TEST(AnalyticCosts, FourRanksOnTwoCoresTakeAsLongAsTheirWork) {
  // Data parallel: the four ranks' compute is one rank's of four times the micro-batches, on two
  // cores instead of one: half the time. Their reductions take some of the cores' time as well.
  const Program four = lower_tiny({.dp = 4, .micro_batches = 2, .layers = 4});
  const Program one = lower_tiny({.dp = 1, .micro_batches = 8, .layers = 4});
  const Cluster shared = test::cluster_of(DeviceClass::kCpu, 4, 2);
  const Cluster single = test::cluster_of(DeviceClass::kCpu, 1, 2);
  const auto calibration = flat_calibration(2);
  const auto on_four = simulate(four, shared, analytic_costs(four, shared, calibration));
  const auto on_one = simulate(one, single, analytic_costs(one, single, calibration));
  ASSERT_TRUE(on_four.ok() && on_one.ok());
  EXPECT_EQ(on_four->provenance, Provenance::kCalibrated);
  EXPECT_GT(on_four->breakdown.compute.value, 0.99 * on_one->breakdown.compute.value / 2.0);
  EXPECT_LT(on_four->breakdown.compute.value, 1.25 * on_one->breakdown.compute.value / 2.0);
}

/// Time of all optimizer steps of rank 0, in picoseconds.
double update_time(OptimizerKind optimizer, bool calibrated, std::int64_t* elements = nullptr) {
  bayplan::test::TinyPlan tiny;
  tiny.optimizer = optimizer;
  const Program program = lower_tiny(tiny);
  Cluster cluster = test::cluster_of(DeviceClass::kCpu, 1, 1);
  cluster.groups[0].device.memory_bandwidth = BytesPerSecond(1e9);
  cluster.groups[0].device.memory_efficiency = 1.0;
  const CostModel costs =
      analytic_costs(program, cluster, calibrated ? flat_calibration(1) : nullptr);
  const InstructionList& list = program.list(0, ProgramKind::kTrainStep);
  double total = 0.0;
  for (const Instruction& i : list.instructions) {
    if (i.kind != InstructionKind::kOptimizerStep) continue;
    total += static_cast<double>(costs.compute(0, list, i).time.value);
    if (elements != nullptr)
      *elements += program.parameter_groups[i.parameter_group.index()].padded_elements;
  }
  return total;
}

TEST(AnalyticCosts, AnUpdateTakesTimeByTheBytesThatItMoves) {
  // Per fp32 parameter: read the gradient, read and write the weight and each moment:
  // AdamW and Adam 4 + 3 * 8 = 28 bytes, SGD 4 + 8 = 12, with momentum 4 + 2 * 8 = 20. Calibrated,
  // AdamW takes 1 ns an element here.
  std::int64_t elements = 0;
  const double adamw = update_time(OptimizerKind::kAdamW, true, &elements);
  EXPECT_NEAR(adamw, 1e3 * static_cast<double>(elements), 1e-6 * adamw);
  EXPECT_EQ(update_time(OptimizerKind::kAdam, true), adamw);
  EXPECT_NEAR(update_time(OptimizerKind::kSgd, true), adamw * 12 / 28, 1e-3 * adamw);
  EXPECT_NEAR(update_time(OptimizerKind::kSgdMomentum, true), adamw * 20 / 28, 1e-3 * adamw);
  // Without a calibration, the bytes over the memory's 1 GB/s: 28 ns an element, and little more
  // for the scalars.
  const double by_bytes = update_time(OptimizerKind::kAdamW, false);
  EXPECT_NEAR(by_bytes, 28e3 * static_cast<double>(elements), 0.02 * by_bytes);
  EXPECT_NEAR(update_time(OptimizerKind::kSgd, false), by_bytes * 12 / 28, 0.02 * by_bytes);
}

}  // namespace
}  // namespace bayplan::sim
