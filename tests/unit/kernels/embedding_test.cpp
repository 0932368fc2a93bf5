// Embedding lookup and its transpose.
#include <gtest/gtest.h>

#include "kernels/embedding.h"
#include "kernels/reference/reference.h"
#include "tests/unit/kernels/arrays.h"

namespace bayplan::kernels::test {
namespace {

constexpr std::int64_t kVocabulary = 11;
constexpr std::int64_t kSeq = 6;

// 13 tokens: repeated ids, two sequences and a bit.
const std::vector<std::int32_t> kIds = {3, 0, 10, 3, 3, 7, 1, 10, 0, 3, 5, 5, 9};
const std::int64_t kTokens = 13;

template <class T>
class Embedding : public ::testing::Test {};
TYPED_TEST_SUITE(Embedding, StorageTypes);

TYPED_TEST(Embedding, AgreesWithReferenceForEveryWidth) {
  for (std::int64_t width = 0; width <= 67; ++width) {
    const EmbeddingShape shape{.width = width, .seq = kSeq, .vocabulary = {0, kVocabulary}};
    const auto wte = random_array<TypeParam>(kVocabulary * width, 1);
    const auto wpe = random_array<TypeParam>(kSeq * width, 2);
    std::vector<TypeParam> out(static_cast<std::size_t>(kTokens * width));
    std::vector<double> want(out.size());
    in_pieces(kTokens, [&](Range part) {
      embedding_forward(out.data(), wte.data(), wpe.data(), kIds.data(), shape, part);
    });
    reference::embedding_forward(want.data(), widen(wte).data(), widen(wpe).data(), kIds.data(),
                                 shape, kTokens);
    // One addition.
    expect_close(out, want, [&](std::size_t i) { return kUnit<TypeParam> * std::abs(want[i]); });

    const auto dout = random_array<TypeParam>(kTokens * width, 3);
    std::vector<accumulate_t<TypeParam>> dwte(wte.size()), dwpe(wpe.size());
    std::vector<double> want_dwte(wte.size()), want_dwpe(wpe.size());
    in_pieces(width, [&](Range columns) {
      embedding_backward_weight(dwte.data(), dwpe.data(), dout.data(), kIds.data(), shape, kTokens,
                                columns);
    });
    reference::embedding_backward_weight(want_dwte.data(), want_dwpe.data(), widen(dout).data(),
                                         kIds.data(), shape, kTokens);
    // At most four tokens share an id, three a position: sums of 4 terms below 2.
    expect_close(dwte, want_dwte, [](std::size_t) { return 4 * kUnit<TypeParam> * 8; });
    expect_close(dwpe, want_dwpe, [](std::size_t) { return 3 * kUnit<TypeParam> * 6; });
  }
}

TYPED_TEST(Embedding, ColumnSplitGivesTheSameBitsAndAddsToWhatIsThere) {
  const std::int64_t width = 45;
  const EmbeddingShape shape{.width = width, .seq = kSeq, .vocabulary = {0, kVocabulary}};
  const auto dout = random_array<TypeParam>(kTokens * width, 4);
  const auto before = random_array<accumulate_t<TypeParam>>(kVocabulary * width, 5);
  auto whole = before;
  auto pieces = before;
  embedding_backward_weight(whole.data(), nullptr, dout.data(), kIds.data(), shape, kTokens,
                            Range{0, width});
  in_pieces(width, [&](Range columns) {
    embedding_backward_weight(pieces.data(), nullptr, dout.data(), kIds.data(), shape, kTokens,
                              columns);
  });
  EXPECT_TRUE(same_bits(whole, pieces));
  // Id 7 occurs once, at token 5; id 2 never.
  EXPECT_EQ(whole[7 * width], before[7 * width] + widen(dout[5 * width]));
  EXPECT_EQ(whole[2 * width], before[2 * width]);
}

TYPED_TEST(Embedding, VocabularyShardsAddUpToTheWhole) {
  const std::int64_t width = 9;
  EmbeddingShape shape{.width = width, .seq = kSeq, .vocabulary = {0, kVocabulary}};
  const auto wte = random_array<TypeParam>(kVocabulary * width, 6);
  std::vector<TypeParam> whole(static_cast<std::size_t>(kTokens * width));
  embedding_forward<TypeParam>(whole.data(), wte.data(), nullptr, kIds.data(), shape,
                               Range{0, kTokens});
  std::vector<TypeParam> low(whole.size()), high(whole.size());
  shape.vocabulary = {0, 4};
  embedding_forward<TypeParam>(low.data(), wte.data(), nullptr, kIds.data(), shape,
                               Range{0, kTokens});
  shape.vocabulary = {4, kVocabulary};
  embedding_forward<TypeParam>(high.data(), wte.data() + 4 * width, nullptr, kIds.data(), shape,
                               Range{0, kTokens});
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(widen(low[i]) + widen(high[i]), widen(whole[i]));
    EXPECT_TRUE(widen(low[i]) == 0.0 || widen(high[i]) == 0.0);
  }
}

TYPED_TEST(Embedding, GivenPositionsReplaceTheTokenIndex) {
  const std::int64_t width = 5;
  EmbeddingShape shape{.width = width, .seq = kSeq, .vocabulary = {0, kVocabulary}};
  const auto wte = random_array<TypeParam>(kVocabulary * width, 7);
  const auto wpe = random_array<TypeParam>(kSeq * width, 8);
  const std::vector<std::int32_t> positions = {5, 5};
  shape.positions = positions.data();
  std::vector<TypeParam> out(10);
  embedding_forward(out.data(), wte.data(), wpe.data(), kIds.data(), shape, Range{0, 2});
  EXPECT_EQ(widen(out[0]), widen(narrow<TypeParam>(widen(wte[3 * width]) + widen(wpe[5 * width]))));
}

}  // namespace
}  // namespace bayplan::kernels::test
