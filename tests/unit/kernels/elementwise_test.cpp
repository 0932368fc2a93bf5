// Residual addition, accumulation, scaling, biases and the ranked sum.
#include <gtest/gtest.h>

#include "kernels/elementwise.h"
#include "kernels/ranked_sum.h"
#include "tests/unit/kernels/arrays.h"

namespace bayplan::kernels::test {
namespace {

template <class T>
class Elementwise : public ::testing::Test {};
TYPED_TEST_SUITE(Elementwise, StorageTypes);

/// What one rounded operation in accumulate_t<T> gives, stored as T.
template <class T>
double stored(accumulate_t<T> value) {
  return widen(narrow<T>(value));
}

TYPED_TEST(Elementwise, SumsAndProductsAreRoundedOnceForEveryTail) {
  using A = accumulate_t<TypeParam>;
  for (std::int64_t n = 0; n <= 67; ++n) {
    const auto a = random_array<TypeParam>(n, 1);
    const auto b = random_array<TypeParam>(n, 2);
    const auto acc0 = random_array<A>(n, 3);
    std::vector<TypeParam> sum(a.size()), product(a.size());
    auto acc = acc0;
    residual_add(sum.data(), a.data(), b.data(), Range{0, n});
    scale(product.data(), a.data(), A(0.3), Range{0, n});
    accumulate(acc.data(), a.data(), Range{0, n});
    for (std::size_t i = 0; i < a.size(); ++i) {
      const A x = static_cast<A>(widen(a[i]));
      EXPECT_EQ(widen(sum[i]), stored<TypeParam>(x + static_cast<A>(widen(b[i]))));
      EXPECT_EQ(widen(product[i]), stored<TypeParam>(x * A(0.3)));
      EXPECT_EQ(acc[i], acc0[i] + x);
    }
  }
}

TYPED_TEST(Elementwise, RangesTouchNothingOutside) {
  const auto a = random_array<TypeParam>(70, 4);
  const auto before = random_array<TypeParam>(70, 5);
  for (std::int64_t begin = 0; begin < 20; ++begin) {
    for (std::int64_t end = begin; end < begin + 40; ++end) {
      auto out = before;
      residual_add(out.data(), a.data(), a.data(), Range{begin, end});
      for (std::int64_t i = 0; i < 70; ++i) {
        const bool inside = i >= begin && i < end;
        ASSERT_EQ(widen(out[i]), inside ? stored<TypeParam>(2 * widen(a[i])) : widen(before[i]));
      }
    }
  }
}

TYPED_TEST(Elementwise, OutputMayBeAnInput) {
  const auto a = random_array<TypeParam>(77, 6);
  const auto b = random_array<TypeParam>(77, 7);
  std::vector<TypeParam> apart(77);
  residual_add(apart.data(), a.data(), b.data(), Range{0, 77});
  auto in_place = b;
  residual_add(in_place.data(), a.data(), in_place.data(), Range{0, 77});
  EXPECT_TRUE(same_bits(apart, in_place));
}

TYPED_TEST(Elementwise, BiasIsAddedToEveryRow) {
  for (std::int64_t width = 0; width <= 67; ++width) {
    const auto x = random_array<TypeParam>(3 * width, 8);
    const auto bias = random_array<TypeParam>(width, 9);
    std::vector<TypeParam> out(x.size());
    in_pieces(3,
              [&](Range rows) { add_bias_rows(out.data(), x.data(), bias.data(), width, rows); });
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double sum = widen(x[i]) + widen(bias[i % static_cast<std::size_t>(width)]);
      EXPECT_EQ(widen(out[i]), stored<TypeParam>(static_cast<accumulate_t<TypeParam>>(sum)));
    }
  }
}

TYPED_TEST(Elementwise, BiasGradientAddsRowsInAscendingOrder) {
  using A = accumulate_t<TypeParam>;
  for (const std::int64_t rows : {0, 1, 2, 3, 4, 5, 30}) {
    for (const std::int64_t width : {1, 5, 31, 67, 600}) {
      const auto dy = random_array<TypeParam>(rows * width, 10);
      const auto before = random_array<A>(width, 11);
      auto fresh = before;
      auto added = before;
      bias_gradient(fresh.data(), dy.data(), rows, width, false, Range{0, width});
      in_pieces(width, [&](Range columns) {
        bias_gradient(added.data(), dy.data(), rows, width, true, columns);
      });
      for (std::int64_t c = 0; c < width; ++c) {
        A sum = 0;
        for (std::int64_t r = 0; r < rows; ++r) {
          sum += static_cast<A>(widen(dy[r * width + c]));
        }
        ASSERT_EQ(fresh[c], sum);
        ASSERT_EQ(added[c], before[c] + sum);
      }
    }
  }
}

TYPED_TEST(Elementwise, RankedSumAddsInRankOrderAndRoundsOnce) {
  using A = accumulate_t<TypeParam>;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (std::int64_t n = 0; n <= 67; ++n) {
      std::vector<std::vector<TypeParam>> inputs;
      std::vector<const TypeParam*> pointers;
      for (int r = 0; r < ranks; ++r) {
        inputs.push_back(random_array<TypeParam>(n, 20 + static_cast<unsigned>(r)));
      }
      for (const auto& input : inputs) {
        pointers.push_back(input.data());
      }
      std::vector<double> want;
      for (std::int64_t i = 0; i < n; ++i) {
        A sum = static_cast<A>(widen(inputs[0][i]));
        for (int r = 1; r < ranks; ++r) {
          sum += static_cast<A>(widen(inputs[r][i]));
        }
        want.push_back(stored<TypeParam>(sum));
      }
      // Into the last input, in pieces.
      in_pieces(n, [&](Range part) {
        sum_in_rank_order(inputs.back().data(), pointers.data(), ranks, part);
      });
      EXPECT_EQ(widen(inputs.back()), want);
    }
  }
}

TEST(RankedSum, Bf16IsSummedInFp32) {
  // 256 + 1 + 1: bf16 has 8 significant bits, so rounding after every addition would stay at 256
  // (257 is a tie, to even); in fp32 the sum is 258, which bf16 can hold.
  const bf16 large = to_bf16(256.0f);
  const bf16 one = to_bf16(1.0f);
  const bf16* inputs[] = {&large, &one, &one};
  bf16 out{};
  sum_in_rank_order(&out, inputs, 3, Range{0, 1});
  EXPECT_EQ(to_float(out), 258.0f);
}

}  // namespace
}  // namespace bayplan::kernels::test
