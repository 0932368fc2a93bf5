// AdamW, Adam and SGD on a flat shard.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/optim.h"
#include "kernels/reference/reference.h"
#include "tests/unit/kernels/arrays.h"

namespace bayplan::kernels::test {
namespace {

AdamOptions options_at(std::int64_t step) {
  AdamOptions options;
  options.weight_decay = 0.1;
  options.bias_correction1 = adam_bias_correction(options.beta1, step);
  options.bias_correction2 = adam_bias_correction(options.beta2, step);
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

  bool update(const AdamOptions& options, A grad_scale, Range part) {
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
  const AdamOptions options = options_at(3);
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
  const AdamOptions options = options_at(7);
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
  AdamOptions options = options_at(1);
  options.weight_decay = 0.0;
  ASSERT_TRUE(adamw_step(options, &scale, &grad, &p, &m, &v, Range{0, 1}));
  EXPECT_NEAR(p, 0.999 + 5e-12, 1e-15);
}

template <class G>
class Adam : public ::testing::Test {};
TYPED_TEST_SUITE(Adam, StorageTypes);

template <class G>
bool adam(const AdamOptions& options, accumulate_t<G> grad_scale, Shard<G>& s, Range part) {
  if constexpr (std::is_same_v<G, double>) {
    return adam_step(options, &grad_scale, s.grad.data(), s.master.data(), s.m.data(), s.v.data(),
                     part);
  } else {
    return adam_step(options, &grad_scale, s.grad.data(), s.master.data(), s.m.data(), s.v.data(),
                     s.weight.data(), part);
  }
}

TYPED_TEST(Adam, AgreesWithReferenceForEveryTail) {
  const AdamOptions options = options_at(3);
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
    reference::adam_step(options, scale, grad.data(), p.data(), m.data(), v.data(), n);
    ASSERT_TRUE(adam(options, static_cast<accumulate_t<TypeParam>>(scale), shard, Range{0, n}));

    // Size of the terms of g = grad scale + wd p: each is right to 2 units, their sum to 3.
    const auto g_size = [&](std::size_t i) {
      return std::abs(grad[i] * scale) + options.weight_decay * std::abs(p0[i]);
    };
    const auto m_bound = [&](std::size_t i) {
      return 6 * u * (options.beta1 * std::abs(m0[i]) + 0.1 * g_size(i));
    };
    const auto v_bound = [&](std::size_t i) {
      return 5 * u * v[i] + 9 * u * (1 - options.beta2) * g_size(i) * g_size(i);
    };
    expect_close(shard.m, m, m_bound);
    expect_close(shard.v, v, v_bound);
    // As for AdamW, with the relative error of v above, and without decay of p.
    expect_close(shard.master, p, [&](std::size_t i) {
      const double denominator = std::sqrt(v[i] / options.bias_correction2) + options.eps;
      const double step = options.lr / options.bias_correction1 / denominator;
      const double relative = 8 * u + v_bound(i) / v[i];
      return u * std::abs(p0[i]) + step * (m_bound(i) + relative * std::abs(m[i]));
    });
  }
}

TYPED_TEST(Adam, SplittingTheShardChangesNoBit) {
  Shard<TypeParam> whole(997);
  Shard<TypeParam> pieces(997);
  adam<TypeParam>(options_at(7), 1, whole, Range{0, 997});
  in_pieces(997, [&](Range part) { adam<TypeParam>(options_at(7), 1, pieces, part); });
  EXPECT_TRUE(same_bits(whole.master, pieces.master));
  EXPECT_TRUE(same_bits(whole.m, pieces.m));
  EXPECT_TRUE(same_bits(whole.v, pieces.v));
  EXPECT_TRUE(same_bits(whole.weight, pieces.weight));
}

TYPED_TEST(Adam, WithoutDecayIsAdamWWithoutDecay) {
  AdamOptions options = options_at(4);
  options.weight_decay = 0.0;
  Shard<TypeParam> one(131);
  Shard<TypeParam> other(131);
  adam<TypeParam>(options, 1, one, Range{0, 131});
  other.update(options, 1, Range{0, 131});
  EXPECT_TRUE(same_bits(one.master, other.master));
  EXPECT_TRUE(same_bits(one.v, other.v));
  EXPECT_TRUE(same_bits(one.weight, other.weight));
}

TEST(AdamStep, FirstStepIgnoresTheSizeOfGradientAndDecay) {
  // With m = v = 0 the first step is lr * g / (|g| + eps) for g = 2 + 0.1 * 1; as g >> eps:
  // p = 1 - 1e-3 (1 - 1e-8 / 2.1).
  const double grad = 2.0;
  const double scale = 1.0;
  double p = 1.0;
  double m = 0.0;
  double v = 0.0;
  ASSERT_TRUE(adam_step(options_at(1), &scale, &grad, &p, &m, &v, Range{0, 1}));
  EXPECT_NEAR(p, 1.0 - 1e-3 * (1.0 - 1e-8 / 2.1), 1e-15);
}

template <class G>
class Sgd : public ::testing::Test {};
TYPED_TEST_SUITE(Sgd, StorageTypes);

/// m is the momentum buffer.
template <class G>
bool sgd(const SgdOptions& options, accumulate_t<G> grad_scale, Shard<G>& s, bool momentum,
         Range part) {
  accumulate_t<G>* const buffer = momentum ? s.m.data() : nullptr;
  if constexpr (std::is_same_v<G, double>) {
    return sgd_step(options, &grad_scale, s.grad.data(), s.master.data(), buffer, part);
  } else {
    return sgd_step(options, &grad_scale, s.grad.data(), s.master.data(), buffer, s.weight.data(),
                    part);
  }
}

constexpr SgdOptions kSgd{0.01, 0.9, 0.1};

TYPED_TEST(Sgd, AgreesWithReferenceForEveryTail) {
  const double scale = 0.25;
  const double u = kUnit<TypeParam>;
  for (const bool momentum : {false, true}) {
    for (std::int64_t n = 0; n <= 67; ++n) {
      Shard<TypeParam> shard(n);
      const auto grad = widen(shard.grad);
      const auto m0 = widen(shard.m);
      auto p = widen(shard.master);
      auto m = m0;
      const auto p0 = p;
      reference::sgd_step(kSgd, scale, grad.data(), p.data(), momentum ? m.data() : nullptr, n);
      ASSERT_TRUE(
          sgd(kSgd, static_cast<accumulate_t<TypeParam>>(scale), shard, momentum, Range{0, n}));
      // g: a rounded gradient and coefficient, product, sum; the buffer: the same once more.
      const auto step_bound = [&](std::size_t i) {
        const double g = std::abs(grad[i] * scale) + kSgd.weight_decay * std::abs(p0[i]);
        return 5 * u * (g + (momentum ? kSgd.momentum * std::abs(m0[i]) : 0.0));
      };
      expect_close(shard.m, m, [&](std::size_t i) { return momentum ? step_bound(i) : 0.0; });
      expect_close(shard.master, p, [&](std::size_t i) {
        return u * std::abs(p[i]) + 1.5 * kSgd.lr * step_bound(i);
      });
      if (!std::is_same_v<TypeParam, double>) {
        for (std::size_t i = 0; i < shard.weight.size(); ++i) {
          ASSERT_EQ(shard.weight[i].bits, to_bf16(static_cast<float>(shard.master[i])).bits);
        }
      }
    }
  }
}

TYPED_TEST(Sgd, SplittingTheShardChangesNoBit) {
  for (const bool momentum : {false, true}) {
    Shard<TypeParam> whole(997);
    Shard<TypeParam> pieces(997);
    sgd<TypeParam>(kSgd, 1, whole, momentum, Range{0, 997});
    in_pieces(997, [&](Range part) { sgd<TypeParam>(kSgd, 1, pieces, momentum, part); });
    EXPECT_TRUE(same_bits(whole.master, pieces.master));
    EXPECT_TRUE(same_bits(whole.m, pieces.m));
    EXPECT_TRUE(same_bits(whole.weight, pieces.weight));
  }
}

TYPED_TEST(Sgd, NotFiniteScaleLeavesEverythingUntouched) {
  using A = accumulate_t<TypeParam>;
  Shard<TypeParam> shard(19);
  const Shard<TypeParam> before = shard;
  EXPECT_FALSE(
      sgd<TypeParam>(kSgd, std::numeric_limits<A>::quiet_NaN(), shard, true, Range{0, 19}));
  EXPECT_FALSE(
      adam<TypeParam>(options_at(1), std::numeric_limits<A>::infinity(), shard, Range{0, 19}));
  EXPECT_TRUE(same_bits(shard.master, before.master));
  EXPECT_TRUE(same_bits(shard.m, before.m));
  EXPECT_TRUE(same_bits(shard.weight, before.weight));
}

TEST(SgdStep, TwoStepsWithMomentumByHand) {
  // lr 0.1, momentum 0.5, decay 0.25, gradient 1 at p = 2, buffer 0:
  // g = 1 + 0.25 * 2 = 1.5, buffer 1.5, p = 2 - 0.15 = 1.85;
  // g = 1 + 0.25 * 1.85 = 1.4625, buffer 0.75 + 1.4625 = 2.2125, p = 1.85 - 0.22125 = 1.62875.
  const SgdOptions options{0.1, 0.5, 0.25};
  const double grad = 1.0;
  const double scale = 1.0;
  double p = 2.0;
  double buffer = 0.0;
  ASSERT_TRUE(sgd_step(options, &scale, &grad, &p, &buffer, Range{0, 1}));
  EXPECT_NEAR(p, 1.85, 1e-15);
  ASSERT_TRUE(sgd_step(options, &scale, &grad, &p, &buffer, Range{0, 1}));
  EXPECT_NEAR(buffer, 2.2125, 1e-15);
  EXPECT_NEAR(p, 1.62875, 1e-15);
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
