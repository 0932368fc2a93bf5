// Quantities: what is read, what is refused, and that printing reads back.
#include "planner/formats/quantity.h"

#include <gtest/gtest.h>

#include <cmath>

namespace bayplan {
namespace {

TEST(Quantity, DecimalAndBinaryBytesDiffer) {
  EXPECT_EQ(parse_bytes("80GB", "x")->value, 80'000'000'000);
  EXPECT_EQ(parse_bytes("80GiB", "x")->value, 80LL * 1024 * 1024 * 1024);
  EXPECT_EQ(parse_bytes("1.5 KiB", "x")->value, 1536);
  EXPECT_EQ(parse_bytes("2e9B", "x")->value, 2'000'000'000);
}

TEST(Quantity, BitsPerSecondAreAnEighthOfBytes) {
  // 200e9 bits / 8 = 25e9 bytes.
  EXPECT_DOUBLE_EQ(parse_rate("200Gbps", "x")->value, 25e9);
  EXPECT_DOUBLE_EQ(parse_rate("3GB/s", "x")->value, 3e9);
}

TEST(Quantity, DurationsAndRatesHaveTheirUnits) {
  EXPECT_DOUBLE_EQ(parse_duration("25us", "x")->value, 25e-6);
  EXPECT_DOUBLE_EQ(parse_duration("2min", "x")->value, 120.0);
  EXPECT_DOUBLE_EQ(parse_flop_rate("312TFLOP/s", "x")->value, 312e12);
  EXPECT_DOUBLE_EQ(*parse_watts("0.4kW", "x"), 400.0);
  EXPECT_DOUBLE_EQ(*parse_price("2.5USD/h", "x"), 2.5);
}

struct BadBytes {
  const char* text;
  const char* code;
};
class RefusedBytes : public ::testing::TestWithParam<BadBytes> {};

TEST_P(RefusedBytes, WithCodePlaceAndHint) {
  const auto result = parse_bytes(GetParam().text, "--set memory");
  ASSERT_FALSE(result.ok()) << GetParam().text;
  EXPECT_EQ(result.error().code, GetParam().code) << GetParam().text;
  EXPECT_EQ(result.error().where, "--set memory");
}

INSTANTIATE_TEST_SUITE_P(
    Texts, RefusedBytes,
    ::testing::Values(BadBytes{"80", "bad-quantity"}, BadBytes{"", "bad-quantity"},
                      BadBytes{"GB", "bad-quantity"}, BadBytes{"80Gb", "bad-quantity"},
                      BadBytes{"80 GB/s", "bad-quantity"}, BadBytes{"nanGB", "bad-quantity"},
                      BadBytes{"infGB", "bad-quantity"}, BadBytes{"-1GB", "out-of-range"},
                      BadBytes{"-0GB", "out-of-range"}, BadBytes{"0GB", "out-of-range"},
                      BadBytes{"0.1B", "out-of-range"},
                      // 2^62 bytes is the limit: 4 EiB = 4096 PiB.
                      BadBytes{"4096PiB", "out-of-range"}, BadBytes{"1e400GB", "out-of-range"}));

TEST(Quantity, ZeroIsAllowedWhereItMeansNone) {
  EXPECT_EQ(parse_bytes("0B", "x", Zero::kAllowed)->value, 0);
  EXPECT_DOUBLE_EQ(parse_rate("0GB/s", "x", Zero::kAllowed)->value, 0.0);
}

TEST(Quantity, ExactTextReadsBackAsTheSameValue) {
  std::uint64_t state = 1;
  for (int i = 0; i < 2000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto bits = static_cast<std::int64_t>(state >> 20);
    const Bytes bytes(bits << (i % 18));
    EXPECT_EQ(parse_bytes(exact_bytes(bytes), "x", Zero::kAllowed)->value, bytes.value);
    const double real = std::ldexp(static_cast<double>(bits), i % 60 - 60);
    EXPECT_EQ(parse_rate(exact_rate(BytesPerSecond(real)), "x", Zero::kAllowed)->value, real);
    EXPECT_EQ(parse_duration(exact_duration(Seconds(real)), "x", Zero::kAllowed)->value, real);
  }
}

TEST(Quantity, ShortTextHasThreeDigitsAndAUnit) {
  EXPECT_EQ(short_bytes(Bytes(84'934'656'000)), "79.1 GiB");  // 84934656000 / 2^30 = 79.10
  EXPECT_EQ(short_bytes(Bytes(0)), "0 B");
  EXPECT_EQ(short_duration(Seconds(0.00123)), "1.23 ms");
  EXPECT_EQ(short_count(124'439'808), "124 M");
}

}  // namespace
}  // namespace bayplan
