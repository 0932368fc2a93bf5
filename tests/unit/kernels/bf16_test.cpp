// Rounding between fp32 and bf16, scalar and vector.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/elementwise.h"
#include "tests/unit/kernels/arrays.h"

namespace bayplan::kernels::test {
namespace {

std::uint16_t rounded(float value) { return to_bf16(value).bits; }

TEST(Bf16, EveryPatternSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = to_float(bf16{static_cast<std::uint16_t>(bits)});
    EXPECT_EQ(rounded(value), std::isnan(value) ? 0x7FC0 : bits);
  }
}

TEST(Bf16, TiesGoToEven) {
  // bf16 keeps 7 fraction bits: the spacing at 1 is 2^-7, so 1 + 2^-8 is half way between
  // 0x3F80 (even) and 0x3F81 (odd), and 1 + 3 * 2^-8 between 0x3F81 and 0x3F82.
  EXPECT_EQ(rounded(1.0f + 0x1p-8f), 0x3F80);
  EXPECT_EQ(rounded(1.0f + 3 * 0x1p-8f), 0x3F82);
  EXPECT_EQ(rounded(std::nextafter(1.0f + 0x1p-8f, 2.0f)), 0x3F81);
  EXPECT_EQ(rounded(-1.0f - 0x1p-8f), 0xBF80);
}

TEST(Bf16, OverflowIsInfinityAndNanIsQuiet) {
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(rounded(-std::numeric_limits<float>::infinity()), 0xFF80);
  EXPECT_EQ(rounded(std::numeric_limits<float>::signaling_NaN()), 0x7FC0);
}

TEST(Bf16, VectorCastEqualsScalarForRoundingCasesAndEveryTail) {
  // Each upper half with lower halves below, at and above the tie.
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 0x10000; high += 7) {
    for (const std::uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      values.push_back(std::bit_cast<float>((high << 16) | low));
    }
  }
  const std::int64_t n = static_cast<std::int64_t>(values.size());
  std::vector<bf16> got(values.size());
  cast(got.data(), values.data(), Range{0, n});
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(got[i].bits, rounded(values[i])) << i;
  }
  std::vector<bf16> pieces(values.size());
  in_pieces(n, [&](Range part) { cast(pieces.data(), values.data(), part); });
  EXPECT_TRUE(same_bits(pieces, got));

  std::vector<float> back(values.size());
  in_pieces(n, [&](Range part) { cast(back.data(), got.data(), part); });
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::uint32_t{got[i].bits} << 16);
  }
}

}  // namespace
}  // namespace bayplan::kernels::test
