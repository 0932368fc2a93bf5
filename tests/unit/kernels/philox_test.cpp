// Philox: published vectors, element indexing, distributions; and dropout, which is built on it.
#include <gtest/gtest.h>

#include <array>

#include "kernels/dropout.h"
#include "kernels/philox.h"
#include "kernels/reference/reference.h"
#include "tests/unit/kernels/arrays.h"

namespace bayplan::kernels::test {
namespace {

using Words = std::array<std::uint32_t, 4>;

constexpr PhiloxStream kStream{.seed = 0x123456789ABCDEF0u, .step = 17, .operator_id = 5};

// Known answers of Random123 (kat_vectors, philox4x32 10).
TEST(Philox, PublishedVectors) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32_10({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, PublishedVectorsThroughTheVectorCode) {
  // Counter {0, 0, step, operator} with seed = key: the zero vector is stream 0, block 0; the
  // other two name their block, step and operator.
  std::vector<std::uint32_t> bits(4);
  philox_bits(bits.data(), {0, 0, 0}, 0, Range{0, 4});
  EXPECT_EQ(bits, (std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  // Block 0x85a308d3243f6a88 would be element 4 * that, beyond 64 bits; the blocks that can be
  // addressed agree with the scalar function below.
  const PhiloxStream pi{.seed = 0x299f31d0a4093822u, .step = 0x13198a2e, .operator_id = 0x03707344};
  const std::uint64_t block = 0x05a308d3243f6a88u;
  philox_bits(bits.data(), pi, 4 * block, Range{0, 4});
  const Words want =
      philox4x32_10({0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  EXPECT_TRUE(std::equal(want.begin(), want.end(), bits.begin()));
}

TEST(Philox, BlockCounterCarriesIntoTheHighWord) {
  // Elements around 4 * 2^32: block 2^32 - 1 has low word all ones, the next one low 0, high 1.
  const std::uint64_t first = (std::uint64_t{4} << 32) - 6;
  std::vector<std::uint32_t> bits(12);
  philox_bits(bits.data(), kStream, first, Range{0, 12});
  const std::uint32_t seed_low = 0x9ABCDEF0u;
  const Words before = philox4x32_10({0xffffffff, 0, 17, 5}, {seed_low, 0x12345678});
  const Words after = philox4x32_10({0, 1, 17, 5}, {seed_low, 0x12345678});
  EXPECT_TRUE(std::equal(before.begin(), before.end(), bits.begin() + 2));
  EXPECT_TRUE(std::equal(after.begin(), after.end(), bits.begin() + 6));
}

TEST(Philox, ValuesDoNotDependOnWhereARangeStarts) {
  const std::int64_t n = 5000;
  std::vector<std::uint32_t> bits(n), bits_pieces(n);
  std::vector<float> uniform(n), uniform_pieces(n), normal(n), normal_pieces(n);
  const std::uint64_t first = 1234567;
  philox_bits(bits.data(), kStream, first, Range{0, n});
  philox_uniform(uniform.data(), kStream, first, Range{0, n});
  philox_normal(normal.data(), kStream, first, 0.5, 0.02, Range{0, n});
  in_pieces(n, [&](Range part) {
    philox_bits(bits_pieces.data(), kStream, first, part);
    philox_uniform(uniform_pieces.data(), kStream, first, part);
    // The same elements, addressed by another base.
    philox_normal(normal_pieces.data() + part.begin, kStream,
                  first + static_cast<std::uint64_t>(part.begin), 0.5, 0.02,
                  Range{0, part.end - part.begin});
  });
  EXPECT_EQ(bits, bits_pieces);
  EXPECT_TRUE(same_bits(uniform, uniform_pieces));
  EXPECT_TRUE(same_bits(normal, normal_pieces));
}

TEST(Philox, AgreesWithReference) {
  const std::int64_t n = 3001;
  std::vector<double> uniform(n), normal(n);
  std::vector<float> normal_f32(n);
  philox_uniform(uniform.data(), kStream, 3, Range{0, n});
  philox_normal(normal.data(), kStream, 3, 0.0, 1.0, Range{0, n});
  philox_normal(normal_f32.data(), kStream, 3, 0.0, 1.0, Range{0, n});
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t element = 3 + static_cast<std::uint64_t>(i);
    EXPECT_EQ(uniform[i], reference::philox_uniform(kStream, element));
    // Logarithm within 4 ulp, cosine and sine within 3 (Highway), the angle rounded twice (below
    // 2 pi, so 2^-50 in all), times a radius below 6.7.
    EXPECT_NEAR(normal[i], reference::philox_normal(kStream, element), 6.7 * 0x1p-49);
    EXPECT_EQ(normal_f32[i], static_cast<float>(normal[i]));
  }
}

TEST(Philox, DifferentKeysGiveDifferentNumbers) {
  PhiloxStream other = kStream;
  std::vector<std::uint32_t> a(64), b(64);
  philox_bits(a.data(), kStream, 0, Range{0, 64});
  const auto differs = [&] {
    philox_bits(b.data(), other, 0, Range{0, 64});
    return a != b;
  };
  other.step = kStream.step + 1;
  EXPECT_TRUE(differs());
  other = kStream;
  other.operator_id = 6;
  EXPECT_TRUE(differs());
  other = kStream;
  other.seed ^= std::uint64_t{1} << 40;
  EXPECT_TRUE(differs());
}

TEST(Philox, MomentsAreThoseOfTheDistributions) {
  const std::int64_t n = 1 << 20;
  std::vector<double> values(n);
  const auto moments = [&] {
    double mean = 0;
    double square = 0;
    for (const double value : values) {
      mean += value / static_cast<double>(n);
      square += value * value / static_cast<double>(n);
    }
    return std::pair{mean, square - mean * mean};
  };
  // Standard error of a mean is sigma / 2^10; five of them. Variance of the variance: for the
  // uniform (1/80 - 1/144) / n, for the normal 2 sigma^4 / n.
  philox_uniform(values.data(), kStream, 0, Range{0, n});
  auto [mean, variance] = moments();
  EXPECT_NEAR(mean, 0.5, 5 * 0.2887 / 1024);
  EXPECT_NEAR(variance, 1.0 / 12, 5 * 0.0745 / 1024);
  philox_normal(values.data(), kStream, 0, 1.0, 0.5, Range{0, n});
  std::tie(mean, variance) = moments();
  EXPECT_NEAR(mean, 1.0, 5 * 0.5 / 1024);
  EXPECT_NEAR(variance, 0.25, 5 * 0.25 * 1.4143 / 1024);
}

template <class T>
class Dropout : public ::testing::Test {};
TYPED_TEST_SUITE(Dropout, StorageTypes);

TYPED_TEST(Dropout, KeepsAndScalesByTheElementsUniformForEveryTail) {
  using A = accumulate_t<TypeParam>;
  const A factor = static_cast<A>(1.0 / (1.0 - 0.3));
  for (std::int64_t n = 0; n <= 67; ++n) {
    const std::uint64_t first = static_cast<std::uint64_t>(n) * 31;
    const auto x = random_array<TypeParam>(n, 1);
    std::vector<TypeParam> out(x.size());
    dropout(out.data(), x.data(), 0.3, kStream, first, Range{0, n});
    for (std::int64_t i = 0; i < n; ++i) {
      const double uniform =
          reference::philox_uniform(kStream, first + static_cast<std::uint64_t>(i));
      const A kept = static_cast<A>(widen(x[i])) * factor;
      EXPECT_EQ(widen(out[i]), uniform >= 0.3 ? widen(narrow<TypeParam>(kept)) : 0.0);
    }
  }
}

TYPED_TEST(Dropout, SplittingOrMovingTheBaseChangesNoBit) {
  const std::int64_t n = 4500;
  const auto x = random_array<TypeParam>(n, 2);
  std::vector<TypeParam> whole(x.size()), pieces(x.size()), moved(x.size());
  dropout(whole.data(), x.data(), 0.1, kStream, 7, Range{0, n});
  in_pieces(n, [&](Range part) {
    dropout(pieces.data(), x.data(), 0.1, kStream, 7, part);
    dropout(moved.data() + part.begin, x.data() + part.begin, 0.1, kStream,
            7 + static_cast<std::uint64_t>(part.begin), Range{0, part.end - part.begin});
  });
  EXPECT_TRUE(same_bits(whole, pieces));
  EXPECT_TRUE(same_bits(whole, moved));
}

TYPED_TEST(Dropout, DropsTheRequestedShareAndNothingAtZero) {
  const std::int64_t n = 1 << 16;
  const std::vector<TypeParam> ones(n, narrow<TypeParam>(1.0));
  std::vector<TypeParam> out(n);
  dropout(out.data(), ones.data(), 0.25, kStream, 0, Range{0, n});
  std::int64_t dropped = 0;
  for (const TypeParam value : out) {
    dropped += widen(value) == 0.0;
  }
  // Binomial: sigma = sqrt(n p (1 - p)) = sqrt(65536 * 0.1875) = 111; five of them.
  EXPECT_NEAR(static_cast<double>(dropped), 16384, 555);
  dropout(out.data(), ones.data(), 0.0, kStream, 0, Range{0, n});
  EXPECT_TRUE(same_bits(out, ones));
}

}  // namespace
}  // namespace bayplan::kernels::test
