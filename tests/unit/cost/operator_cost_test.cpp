#include "planner/cost/operator_cost.h"

#include <gtest/gtest.h>

#include <cmath>

namespace bayplan {
namespace {

/// Linear layer of the given sizes with its shapes.
struct LinearCase {
  Operator op;
  OperatorView view;
  LinearCase(std::int64_t rows, std::int64_t in, std::int64_t out) {
    op.kind = OperatorKind::kLinear;
    op.attributes.in_features = in;
    op.attributes.out_features = out;
    view.op = &op;
    view.inputs = {{Shape{1, rows, in}, ElementClass::kCompute}};
    view.outputs = {{Shape{1, rows, out}, ElementClass::kCompute}};
  }
};

RateGrid grid(std::vector<std::int64_t> rows, std::vector<std::int64_t> in,
              std::vector<double> rates) {
  RateGrid g;
  g.kind = OperatorKind::kLinear;
  g.phase = Phase::kForward;
  g.dtype = DType::kFp32;
  g.axes = {std::move(rows), std::move(in), {64}};
  g.busy = rates;
  g.alone = std::move(rates);
  return g;
}

TEST(Interpolate, GridPointsAreExact) {
  const RateGrid g = grid({64, 1024}, {16, 256}, {1e9, 2e9, 3e9, 4e9});
  EXPECT_NEAR(interpolate(g, g.busy, {64, 16, 64}), 1e9, 1.0);
  EXPECT_NEAR(interpolate(g, g.busy, {64, 256, 64}), 2e9, 1.0);
  EXPECT_NEAR(interpolate(g, g.busy, {1024, 16, 64}), 3e9, 1.0);
  EXPECT_NEAR(interpolate(g, g.busy, {1024, 256, 64}), 4e9, 1.0);
}

TEST(Interpolate, IsGeometricBetweenGridPoints) {
  // 256 is half way from 64 to 1024 in logarithms: sqrt(1e9 · 4e9) = 2e9.
  const RateGrid g = grid({64, 1024}, {16}, {1e9, 4e9});
  EXPECT_NEAR(interpolate(g, g.busy, {256, 16, 64}), 2e9, 1.0);
}

TEST(Interpolate, IsConstantBeyondTheGrid) {
  const RateGrid g = grid({64, 1024}, {16}, {1e9, 4e9});
  EXPECT_NEAR(interpolate(g, g.busy, {1, 1, 1}), 1e9, 1.0);
  EXPECT_NEAR(interpolate(g, g.busy, {1 << 20, 1 << 20, 1 << 20}), 4e9, 1.0);
}

TEST(CalibratedTime, IsWorkOverRate) {
  // 2 · 64 · 16 · 64 FLOP at 1 GFLOP/s busy, 2 GFLOP/s alone.
  Calibration calibration;
  calibration.operators = {grid({64}, {16}, {1e9})};
  calibration.operators[0].alone = {2e9};
  const LinearCase c(64, 16, 64);
  const Precision fp32 = precision_of(DType::kFp32);
  const auto time = calibrated_time(calibration, c.view, Phase::kForward, fp32);
  ASSERT_TRUE(time.has_value());
  const double flops = 2.0 * 64 * 16 * 64;
  EXPECT_NEAR(time->busy.value, flops / 1e9, 1e-12);
  EXPECT_NEAR(time->alone.value, flops / 2e9, 1e-12);
}

TEST(CalibratedTime, UsesTwiceTheTimeOfFp32ForFp64Products) {
  Calibration calibration;
  calibration.operators = {grid({64}, {16}, {1e9})};
  const LinearCase c(64, 16, 64);
  const auto narrow =
      calibrated_time(calibration, c.view, Phase::kForward, precision_of(DType::kFp32));
  const auto wide =
      calibrated_time(calibration, c.view, Phase::kForward, precision_of(DType::kFp64));
  ASSERT_TRUE(narrow && wide);
  EXPECT_DOUBLE_EQ(wide->busy.value, 2.0 * narrow->busy.value);
}

TEST(CalibratedTime, DoesNotGuessWhatWasNotMeasured) {
  Calibration calibration;
  calibration.operators = {grid({64}, {16}, {1e9})};
  const LinearCase c(64, 16, 64);
  EXPECT_FALSE(calibrated_time(calibration, c.view, Phase::kForward, precision_of(DType::kBf16)));
  EXPECT_FALSE(
      calibrated_time(calibration, c.view, Phase::kBackwardInput, precision_of(DType::kFp32)));
}

DeviceSpec test_device() {
  DeviceSpec d;
  d.peak[DType::kBf16] = FlopPerSecond(100e12);
  d.peak[DType::kFp32] = FlopPerSecond(10e12);
  d.memory_bandwidth = BytesPerSecond(1e12);
  d.gemm_efficiency = 0.5;
  d.memory_efficiency = 0.5;
  d.launch = Seconds(2e-6);
  return d;
}

TEST(Roofline, LargeProductsAreLimitedByArithmetic) {
  // 2 · 4096³ FLOP at 100 TFLOP/s · 0.5.
  const LinearCase c(4096, 4096, 4096);
  const double flops = 2.0 * std::pow(4096.0, 3);
  EXPECT_NEAR(
      roofline_time(test_device(), c.view, Phase::kForward, precision_of(DType::kBf16)).value,
      flops / 50e12, 1e-9);
}

TEST(Roofline, ThinProductsAreLimitedByTheWeight) {
  // One row: bytes ≈ 4096² · 2, at 1 TB/s · 0.5: 67 µs against 0.67 µs of arithmetic.
  const LinearCase c(1, 4096, 4096);
  const double bytes = 2.0 * (4096.0 + 4096.0 * 4096.0 + 4096.0);
  EXPECT_NEAR(
      roofline_time(test_device(), c.view, Phase::kForward, precision_of(DType::kBf16)).value,
      bytes / 0.5e12, 1e-9);
}

TEST(Roofline, NothingIsFasterThanALaunch) {
  const LinearCase c(1, 16, 16);
  EXPECT_DOUBLE_EQ(
      roofline_time(test_device(), c.view, Phase::kForward, precision_of(DType::kBf16)).value,
      2e-6);
}

TEST(OperatorSize, IsWhatTheRateDependsOn) {
  const LinearCase c(64, 16, 48);
  EXPECT_EQ(operator_size(c.op, c.view.shapes()), (OperatorSize{64, 16, 48}));
  Operator attention;
  attention.kind = OperatorKind::kAttention;
  attention.attributes.heads = 6;
  attention.attributes.kv_heads = 6;
  attention.attributes.head_dim = 32;
  OperatorView view;
  view.op = &attention;
  view.inputs = {{Shape{4, 128, 3 * 6 * 32}, ElementClass::kCompute}};
  view.outputs = {{Shape{4, 128, 6 * 32}, ElementClass::kCompute}};
  EXPECT_EQ(operator_size(attention, view.shapes()), (OperatorSize{24, 128, 32}));
}

}  // namespace
}  // namespace bayplan
