// Fused softmax cross-entropy.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/cross_entropy.h"
#include "kernels/optim.h"
#include "kernels/reference/reference.h"
#include "tests/unit/kernels/arrays.h"

namespace bayplan::kernels::test {
namespace {

constexpr std::int64_t kRows = 5;

// Labels that are inside every vocabulary of at least one class, one row being ignored.
std::vector<std::int32_t> labels_below(std::int64_t columns) {
  const std::int32_t last = static_cast<std::int32_t>(columns) - 1;
  return {0, last, kIgnoreLabel, last / 2, last / 3};
}

template <class T>
struct Outcome {
  using A = accumulate_t<T>;

  Outcome(const std::vector<T>& start, const LogitsShape& logits_shape)
      : logits(start), loss(kRows), lse(kRows), label_logit(kRows), shape(logits_shape) {}

  void run(const std::vector<std::int32_t>& labels, double seed, Range rows) {
    cross_entropy_forward(loss.data(), lse.data(), label_logit.data(), logits.data(), labels.data(),
                          shape, rows);
    cross_entropy_backward(logits.data(), lse.data(), labels.data(), shape, static_cast<A>(seed),
                           rows);
  }

  std::vector<T> logits;
  std::vector<A> loss, lse, label_logit;
  LogitsShape shape;
};

template <class T>
class CrossEntropy : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropy, StorageTypes);

TYPED_TEST(CrossEntropy, AgreesWithReferenceForEveryTail) {
  std::vector<std::int64_t> vocabularies = {2047, 2048, 2049, 5003, 50257};
  for (std::int64_t columns = 1; columns <= 67; ++columns) {
    vocabularies.push_back(columns);
  }
  const double u = kUnit<TypeParam>;
  const double seed = 0.125;
  for (const std::int64_t columns : vocabularies) {
    SCOPED_TRACE(columns);
    const LogitsShape shape{.columns = columns, .stride = columns + 3};
    const auto start = random_array<TypeParam>(kRows * shape.stride, 1, -8.0, 8.0);
    const auto labels = labels_below(columns);
    Outcome<TypeParam> got(start, shape);
    got.run(labels, seed, Range{0, kRows});
    std::vector<double> loss(kRows), lse(kRows);
    auto gradient = widen(start);
    reference::cross_entropy_forward(loss.data(), lse.data(), gradient.data(), labels.data(), shape,
                                     kRows);
    reference::cross_entropy_backward(gradient.data(), lse.data(), labels.data(), shape, seed,
                                      kRows);
    // Each exponential: its argument |x - max| <= 16 is rounded once, so 16 units, and 3 of its
    // own. A lane adds 64 of them, five folds follow: the sum is right to 90 units, and so is
    // its logarithm, absolutely. |lse| <= 8 + log(columns) < 19 is then rounded.
    expect_close(got.lse, lse, [&](std::size_t) { return (90 + 19) * u; });
    expect_close(got.loss, loss, [&](std::size_t) { return (90 + 19 + 8) * u; });
    // exp(x - lse): the argument is off by lse's error and a rounding of at most 27, then 3.
    // The subtraction of the label and the product with the seed round once each.
    expect_close(got.logits, gradient, [&](std::size_t i) {
      return seed * (90 + 19 + 27 + 3) * u * std::min(1.0, std::abs(gradient[i] / seed) + u) +
             (gradient[i] < 0 ? seed * (90 + 19 + 27 + 5) * u : 2 * u * std::abs(gradient[i]));
    });
  }
}

TYPED_TEST(CrossEntropy, IgnoredRowsHaveNoLossAndNoGradient) {
  const LogitsShape shape{.columns = 37, .stride = 40};
  Outcome<TypeParam> got(random_array<TypeParam>(kRows * 40, 2), shape);
  got.run(labels_below(37), 1.0, Range{0, kRows});
  EXPECT_EQ(got.loss[2], 0.0);
  EXPECT_EQ(got.label_logit[2], 0.0);
  for (std::int64_t c = 0; c < 40; ++c) {
    EXPECT_EQ(widen(got.logits[2 * 40 + c]), 0.0);
  }
}

TYPED_TEST(CrossEntropy, PaddingIsNotReadAndItsGradientIsZero) {
  const LogitsShape shape{.columns = 33, .stride = 48};
  auto start = random_array<TypeParam>(kRows * 48, 3);
  Outcome<TypeParam> plain(start, shape);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t c = 33; c < 48; ++c) {
      start[r * 48 + c] = narrow<TypeParam>(std::numeric_limits<double>::quiet_NaN());
    }
  }
  Outcome<TypeParam> poisoned(start, shape);
  plain.run(labels_below(33), 1.0, Range{0, kRows});
  poisoned.run(labels_below(33), 1.0, Range{0, kRows});
  EXPECT_TRUE(same_bits(plain.loss, poisoned.loss));
  EXPECT_TRUE(same_bits(plain.logits, poisoned.logits));
  EXPECT_EQ(widen(plain.logits[33]), 0.0);
}

TYPED_TEST(CrossEntropy, RowSplitAndMisalignmentChangeNoBit) {
  const LogitsShape shape{.columns = 2500, .stride = 2501};
  const auto start = random_array<TypeParam>(kRows * 2501, 4);
  const auto labels = labels_below(2500);
  Outcome<TypeParam> whole(start, shape);
  Outcome<TypeParam> pieces(start, shape);
  whole.run(labels, 0.5, Range{0, kRows});
  in_pieces(kRows, [&](Range part) { pieces.run(labels, 0.5, part); });
  EXPECT_TRUE(same_bits(whole.loss, pieces.loss));
  EXPECT_TRUE(same_bits(whole.logits, pieces.logits));
  // Row 1 starts one element off any alignment of row 0; alone and aligned it gives the same.
  Outcome<TypeParam> alone({start.begin() + 2501, start.begin() + 2 * 2501}, shape);
  alone.run({labels[1]}, 0.5, Range{0, 1});
  EXPECT_EQ(alone.loss[0], whole.loss[1]);
  EXPECT_TRUE(same_bits(alone.logits, std::vector<TypeParam>(whole.logits.begin() + 2501,
                                                             whole.logits.begin() + 2 * 2501)));
}

TYPED_TEST(CrossEntropy, VocabularyShardsCombineToTheWhole) {
  // Shards [0, 20) and [20, 50): lse of the whole is the log-sum-exp of the shards' lse, and the
  // label's logit is found by exactly one of them.
  const auto start = random_array<TypeParam>(50, 5, -4.0, 4.0);
  const std::vector<std::int32_t> labels = {31};
  const LogitsShape shape{.columns = 50, .stride = 50};
  Outcome<TypeParam> whole(start, shape);
  Outcome<TypeParam> low({start.begin(), start.begin() + 20}, {20, 20, 0});
  Outcome<TypeParam> high({start.begin() + 20, start.end()}, {30, 30, 20});
  for (Outcome<TypeParam>* part : {&whole, &low, &high}) {
    cross_entropy_forward<TypeParam>(nullptr, part->lse.data(), part->label_logit.data(),
                                     part->logits.data(), labels.data(), part->shape, Range{0, 1});
  }
  EXPECT_EQ(low.label_logit[0], 0.0);
  EXPECT_EQ(high.label_logit[0], whole.label_logit[0]);
  const double combined = std::log(std::exp(double{low.lse[0]}) + std::exp(double{high.lse[0]}));
  // Each of the three is right to its own units (see above), and |lse| <= 4 + log 50.
  EXPECT_NEAR(combined, whole.lse[0], 3 * 100 * kUnit<TypeParam>);

  cross_entropy_backward<TypeParam>(whole.logits.data(), whole.lse.data(), labels.data(), shape, 1,
                                    Range{0, 1});
  cross_entropy_backward<TypeParam>(high.logits.data(), whole.lse.data(), labels.data(), high.shape,
                                    1, Range{0, 1});
  EXPECT_TRUE(same_bits(high.logits,
                        std::vector<TypeParam>(whole.logits.begin() + 20, whole.logits.end())));
}

TYPED_TEST(CrossEntropy, ANanLogitGivesANanLoss) {
  for (const std::int64_t where : {0, 7, 40, 66}) {
    auto start = random_array<TypeParam>(67, 6);
    start[where] = narrow<TypeParam>(std::numeric_limits<double>::quiet_NaN());
    Outcome<TypeParam> got(start, {67, 67});
    cross_entropy_forward(got.loss.data(), got.lse.data(), got.label_logit.data(),
                          got.logits.data(), std::vector<std::int32_t>{3}.data(), got.shape,
                          Range{0, 1});
    EXPECT_TRUE(std::isnan(got.loss[0])) << where;
  }
}

TYPED_TEST(CrossEntropy, EqualLogitsCostTheLogarithmOfTheVocabulary) {
  Outcome<TypeParam> got(std::vector<TypeParam>(1000, narrow<TypeParam>(3.0)), {1000, 1000});
  cross_entropy_forward(got.loss.data(), got.lse.data(), got.label_logit.data(), got.logits.data(),
                        std::vector<std::int32_t>{17}.data(), got.shape, Range{0, 1});
  // 3 + log(1000) is formed in fp64, so the loss is log(1000) rounded once.
  EXPECT_NEAR(got.loss[0], std::log(1000.0), 8 * kUnit<TypeParam>);
  EXPECT_EQ(sum_ascending(got.loss.data(), 1), double{got.loss[0]});
}

}  // namespace
}  // namespace bayplan::kernels::test
