// The same kernels on every instruction set that this machine and this build have.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <map>

#include "kernels/kernels.h"
#include "tests/unit/kernels/arrays.h"

namespace bayplan::kernels::test {
namespace {

/// Restores the machine's own choice of target.
struct OnTarget {
  explicit OnTarget(std::int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~OnTarget() { hwy::SetSupportedTargetsForTest(0); }
  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;
};

/// One output of each family, concatenated, from fixed inputs with odd sizes.
template <class T>
std::vector<double> outputs() {
  const std::int64_t rows = 3;
  const std::int64_t width = 77;
  const std::int64_t n = rows * width;
  const Range all{0, n};
  std::vector<double> result;
  const auto keep = [&](const auto& values) {
    const auto wide = widen(values);
    result.insert(result.end(), wide.begin(), wide.end());
  };
  const auto x = random_array<T>(n, 1);
  const auto dy = random_array<T>(n, 2);
  const auto weight = random_array<T>(width, 3);
  std::vector<T> y(x.size());
  std::vector<accumulate_t<T>> mean(rows), rstd(rows), lse(rows), loss(rows), column(width);

  layer_norm_forward<T>(y.data(), mean.data(), rstd.data(), x.data(), weight.data(), weight.data(),
                        width, 1e-5, Range{0, rows});
  keep(y);
  layer_norm_backward_input<T>(y.data(), nullptr, dy.data(), x.data(), weight.data(), mean.data(),
                               rstd.data(), width, Range{0, rows});
  keep(y);
  rms_norm_backward_weight<T>(column.data(), dy.data(), x.data(), rstd.data(), rows, width, false,
                              Range{0, width});
  keep(column);
  gelu_tanh_forward(y.data(), x.data(), all);
  keep(y);
  swiglu_forward<T>({y.data(), width}, {x.data(), width}, {dy.data(), width}, width,
                    Range{0, rows});
  keep(y);
  const std::vector<std::int32_t> labels = {5, 70, kIgnoreLabel};
  y = x;
  cross_entropy_forward<T>(loss.data(), lse.data(), nullptr, y.data(), labels.data(),
                           {width, width}, Range{0, rows});
  cross_entropy_backward<T>(y.data(), lse.data(), labels.data(), {width, width}, 1, Range{0, rows});
  keep(loss);
  keep(y);
  dropout(y.data(), x.data(), 0.2, {1, 2, 3}, 4, all);
  keep(y);
  std::vector<accumulate_t<T>> normal(x.size());
  philox_normal(normal.data(), {1, 2, 3}, 5, 0.0, 1.0, all);
  keep(normal);
  result.push_back(sum_of_squares(x.data(), n));
  return result;
}

bool fuses_multiply_add(std::int64_t target) { return (target & (HWY_AVX2 | HWY_AVX3)) != 0; }

template <class T>
class Targets : public ::testing::Test {};
TYPED_TEST_SUITE(Targets, StorageTypes);

TYPED_TEST(Targets, AgreeAndHaveTheSameBitsWhereMultiplyAddIsFused) {
  const std::vector<double> want = outputs<TypeParam>();
  std::map<std::int64_t, std::vector<double>> fused;
  int tried = 0;
  // The targets of this build, as kernels/cpu/dispatch.h leaves them.
  for (const std::int64_t target : {HWY_AVX3, HWY_AVX2, HWY_NEON, HWY_EMU128, HWY_SCALAR}) {
    if ((hwy::SupportedTargets() & target) == 0) {
      continue;
    }
    const OnTarget on(target);
    const std::vector<double> got = outputs<TypeParam>();
    ++tried;
    SCOPED_TRACE(hwy::TargetName(target));
    // Without fusing every kernel here is still right to a few hundred units of values below 8
    // (its own test), and one of bf16 may round to the other neighbour.
    expect_close(got, want, [&](std::size_t i) {
      return 8 * 300 * kUnit<TypeParam> + 2 * kStoreUnit<TypeParam> * std::abs(want[i]);
    });
    if (fuses_multiply_add(target)) {
      fused[target] = got;
    }
  }
  EXPECT_GE(tried, 1);
  for (const auto& [target, got] : fused) {
    EXPECT_EQ(got, fused.begin()->second) << hwy::TargetName(target);
  }
}

}  // namespace
}  // namespace bayplan::kernels::test
