// AdamW on a flat shard.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/optim.h"
#include "kernels/reference/reference.h"
#include "tests/unit/kernels/arrays.h"

namespace bayplan::kernels::test {
namespace {

AdamWOptions options_at(std::int64_t step) {
  AdamWOptions options;
  options.weight_decay = 0.1;
  options.bias_correction1 = adamw_bias_correction(options.beta1, step);
  options.bias_correction2 = adamw_bias_correction(options.beta2, step);
  return options;
}

template <class G>
struct Shard {
  using A = accumulate_t<G>;

  explicit Shard(std::int64_t count)
      : n(count),
        grad(random_array<G>(n, 1)),
        master(random_array<A>(n, 2)),
        m(random_array<A>(n, 3, -0.1, 0.1)),
        v(random_array<A>(n, 4, 1e-4, 1e-2)),
        weight(static_cast<std::size_t>(n)) {}

  bool update(const AdamWOptions& options, A grad_scale, Range part) {
    if constexpr (std::is_same_v<A, double>) {
      return adamw_step(options, &grad_scale, grad.data(), master.data(), m.data(), v.data(), part);
    } else {
      return adamw_step(options, &grad_scale, grad.data(), master.data(), m.data(), v.data(),
                        weight.data(), part);
    }
  }

  std::int64_t n;
  std::vector<G> grad;
  std::vector<A> master, m, v;
  std::vector<bf16> weight;
};

template <class G>
class AdamW : public ::testing::Test {};
TYPED_TEST_SUITE(AdamW, StorageTypes);

TYPED_TEST(AdamW, AgreesWithReferenceForEveryTail) {
  const AdamWOptions options = options_at(3);
  const double scale = 0.25;
  const double u = kUnit<TypeParam>;
  for (std::int64_t n = 0; n <= 67; ++n) {
    Shard<TypeParam> shard(n);
    const auto grad = widen(shard.grad);
    const auto m0 = widen(shard.m);
    auto p = widen(shard.master);
    auto m = m0;
    auto v = widen(shard.v);
    const auto p0 = p;
    reference::adamw_step(options, scale, grad.data(), p.data(), m.data(), v.data(), n);
    ASSERT_TRUE(shard.update(options, static_cast<accumulate_t<TypeParam>>(scale), Range{0, n}));

    // Each product has a rounded coefficient, a rounded gradient and its own rounding; then the
    // sum rounds: 4 units of every term's size. v has one product more.
    const auto m_bound = [&](std::size_t i) {
      return 4 * u * (options.beta1 * std::abs(m0[i]) + 0.1 * std::abs(grad[i] * scale));
    };
    expect_close(shard.m, m, m_bound);
    expect_close(shard.v, v, [&](std::size_t i) { return 5 * u * v[i]; });
    // The update divides m (absolute error above) by a denominator that is right to 6 units
    // (half of v's 5, square root, coefficient, eps, fused sum), then the quotient, step size
    // and subtraction round. Decay: coefficient, product and final sum, 3 units of p.
    expect_close(shard.master, p, [&](std::size_t i) {
      const double denominator = std::sqrt(v[i] / options.bias_correction2) + options.eps;
      const double step = options.lr / options.bias_correction1 / denominator;
      return 3 * u * std::abs(p0[i]) + step * (m_bound(i) + 10 * u * std::abs(m[i]));
    });
  }
}

TYPED_TEST(AdamW, SplittingTheShardChangesNoBit) {
  const AdamWOptions options = options_at(7);
  Shard<TypeParam> whole(997);
  Shard<TypeParam> pieces(997);
  whole.update(options, 1, Range{0, 997});
  in_pieces(997, [&](Range part) { pieces.update(options, 1, part); });
  EXPECT_TRUE(same_bits(whole.master, pieces.master));
  EXPECT_TRUE(same_bits(whole.m, pieces.m));
  EXPECT_TRUE(same_bits(whole.v, pieces.v));
  EXPECT_TRUE(same_bits(whole.weight, pieces.weight));
}

TYPED_TEST(AdamW, NotFiniteScaleLeavesEverythingUntouched) {
  using A = accumulate_t<TypeParam>;
  for (const A scale : {std::numeric_limits<A>::infinity(), std::numeric_limits<A>::quiet_NaN()}) {
    Shard<TypeParam> shard(19);
    const Shard<TypeParam> before = shard;
    EXPECT_FALSE(shard.update(options_at(1), scale, Range{0, 19}));
    EXPECT_TRUE(same_bits(shard.master, before.master));
    EXPECT_TRUE(same_bits(shard.m, before.m));
    EXPECT_TRUE(same_bits(shard.v, before.v));
    EXPECT_TRUE(same_bits(shard.weight, before.weight));
  }
}

TEST(AdamWWeight, IsTheMasterRoundedToNearestEven) {
  Shard<float> shard(131);
  shard.update(options_at(2), 0.5f, Range{0, 131});
  for (std::size_t i = 0; i < shard.weight.size(); ++i) {
    EXPECT_EQ(shard.weight[i].bits, to_bf16(shard.master[i]).bits);
  }
}

TEST(AdamWWeight, MayBeAbsentWithoutChangingTheUpdate) {
  Shard<float> with(131);
  Shard<float> without(131);
  const float scale = 1.0f;
  with.update(options_at(2), scale, Range{0, 131});
  adamw_step(options_at(2), &scale, without.grad.data(), without.master.data(), without.m.data(),
             without.v.data(), nullptr, Range{0, 131});
  EXPECT_TRUE(same_bits(with.master, without.master));
}

TEST(AdamWStep, FirstStepMovesByTheLearningRate) {
  // With m = v = 0 and bias correction the first step is lr * g / (|g| + eps), here
  // 1e-3 * 2 / (2 + 1e-8): p goes from 1 to 0.999 + 5e-12.
  const double grad = 2.0;
  const double scale = 1.0;
  double p = 1.0;
  double m = 0.0;
  double v = 0.0;
  AdamWOptions options = options_at(1);
  options.weight_decay = 0.0;
  ASSERT_TRUE(adamw_step(options, &scale, &grad, &p, &m, &v, Range{0, 1}));
  EXPECT_NEAR(p, 0.999 + 5e-12, 1e-15);
}

template <class T>
class SumOfSquares : public ::testing::Test {};
TYPED_TEST_SUITE(SumOfSquares, StorageTypes);

TYPED_TEST(SumOfSquares, AgreesWithReferenceForEveryTail) {
  for (std::int64_t n = 0; n <= 67; ++n) {
    const auto x = random_array<TypeParam>(n, 5);
    const double want = reference::sum_of_squares(widen(x).data(), n);
    // At most n additions of non-negative terms, each within half an fp64 ulp, on either side.
    EXPECT_NEAR(sum_of_squares(x.data(), n), want, 2 * static_cast<double>(n) * 0x1p-53 * want);
  }
}

TYPED_TEST(SumOfSquares, BlocksAddedInOrderGiveTheSameBits) {
  const std::int64_t n = 5 * kSumBlock + 77;
  const auto x = random_array<TypeParam>(n, 6);
  std::vector<double> partial(static_cast<std::size_t>(sum_blocks(n)));
  ASSERT_EQ(partial.size(), 6u);
  sum_of_squares_blocks(partial.data(), x.data(), n, Range{4, 6});
  sum_of_squares_blocks(partial.data(), x.data(), n, Range{0, 4});
  EXPECT_EQ(sum_ascending(partial.data(), sum_blocks(n)), sum_of_squares(x.data(), n));
}

TYPED_TEST(SumOfSquares, DoesNotDependOnAlignment) {
  const auto x = random_array<TypeParam>(kSumBlock + 33, 7);
  const auto moved = shifted(x, 1);
  const std::int64_t n = static_cast<std::int64_t>(x.size());
  EXPECT_EQ(sum_of_squares(x.data(), n), sum_of_squares(moved.data() + 1, n));
}

}  // namespace
}  // namespace bayplan::kernels::test
