// Safetensors headers and the differences between files, on files written byte by byte.
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "planner/formats/tensor_difference.h"

namespace bayplan {
namespace {

std::string safetensors_file(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\0');
}

Result<SafetensorsHeader> parse_header(const std::string& file) {
  return parse_safetensors_header(file, static_cast<std::int64_t>(file.size()), "f");
}

TEST(SafetensorsHeader, NamesShapesAndPlacesInNameOrder) {
  // Data starts behind 8 bytes of length and the header; b has 2*3*4 = 24 bytes, a 1*2.
  const std::string header =
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("a":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}}  )";
  const auto read = parse_header(safetensors_file(header, 26));
  ASSERT_TRUE(read.ok()) << read.error().message;
  const auto first = static_cast<std::int64_t>(8 + header.size());
  ASSERT_EQ(read->tensors.size(), 2u);
  EXPECT_EQ(read->tensors[0], (SafetensorsTensor{"a", DType::kBf16, {}, first + 24, first + 26}));
  EXPECT_EQ(read->tensors[1], (SafetensorsTensor{"b", DType::kFp32, {2, 3}, first, first + 24}));
}

TEST(SafetensorsHeader, EmptyFilesAndTensors) {
  EXPECT_TRUE(parse_header(safetensors_file("{}", 0)).ok());
  EXPECT_TRUE(parse_header(safetensors_file(
                               R"({"x":{"dtype":"I64","shape":[0,5],"data_offsets":[0,0]}})", 0))
                  .ok());
}

struct BadFile {
  const char* header;
  std::size_t data_bytes;
  const char* code;
  const char* message;  // part of it
};
class RefusedSafetensors : public ::testing::TestWithParam<BadFile> {};

TEST_P(RefusedSafetensors, SaysWhatWhereAndHint) {
  const auto read = parse_header(safetensors_file(GetParam().header, GetParam().data_bytes));
  ASSERT_FALSE(read.ok()) << GetParam().header;
  EXPECT_EQ(read.error().code, GetParam().code) << read.error().message;
  EXPECT_NE(read.error().message.find(GetParam().message), std::string::npos)
      << read.error().message;
  EXPECT_TRUE(read.error().where.starts_with("f")) << read.error().where;
  EXPECT_FALSE(read.error().hint.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Files, RefusedSafetensors,
    ::testing::Values(
        BadFile{"", 0, "truncated-json", "empty"},
        BadFile{R"({"x":)", 0, "truncated-json", "middle of a value"},
        BadFile{"[]", 0, "wrong-type", "an object"},
        BadFile{R"({"x":1})", 0, "wrong-type", "an object"},
        BadFile{R"({"x":{"dtype":"F32","shape":[1]}})", 4, "missing-field", "data_offsets"},
        BadFile{R"({"x":{"dtype":"F8","shape":[4],"data_offsets":[0,4]}})", 4, "unsupported-dtype",
                "F8"},
        BadFile{R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "out-of-range",
                "-1"},
        BadFile{R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "bad-safetensors",
                "does not take"},
        BadFile{R"({"x":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                "bad-safetensors", "does not take"},
        BadFile{R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 4, "bad-safetensors",
                "inside the 4 bytes"},
        BadFile{R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "bad-safetensors",
                "inside the 4 bytes"},
        BadFile{R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4, "bad-safetensors",
                "inside the 4 bytes"},
        BadFile{R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "bad-safetensors",
                "starts at byte 4"},
        BadFile{R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "bad-safetensors",
                "last 1 bytes"},
        BadFile{R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                4, "bad-safetensors", "'y' starts at byte 0"}));

TEST(SafetensorsHeader, LengthsThatCannotBe) {
  EXPECT_EQ(parse_header("1234567").error().code, "truncated-safetensors");
  std::string longer = safetensors_file("{}", 0);
  longer[0] = 3;  // one more than there is
  EXPECT_EQ(parse_header(longer).error().code, "truncated-safetensors");
  std::string huge = safetensors_file("{}", 0);
  huge[7] = '\x7f';
  EXPECT_EQ(parse_header(huge).error().code, "bad-safetensors");
  huge[7] = '\xff';  // negative as a signed number
  EXPECT_EQ(parse_header(huge).error().code, "bad-safetensors");
}

TEST(HalfValue, ByHand) {
  EXPECT_EQ(half_value(0x3C00), 1.0);
  EXPECT_EQ(half_value(0xC000), -2.0);
  EXPECT_EQ(half_value(0x3555), 1365.0 / 4096.0);  // (1024 + 341) / 2^12
  EXPECT_EQ(half_value(0x7BFF), 65504.0);          // the largest
  EXPECT_EQ(half_value(0x0001), 0x1p-24);          // the smallest
  EXPECT_TRUE(std::isinf(half_value(0xFC00)));
  EXPECT_TRUE(std::isnan(half_value(0x7C01)));
}

class TensorDifferences : public ::testing::Test {
 protected:
  TensorDifferences()
      : folder_(std::filesystem::temp_directory_path() /
                ("bayplan_difference_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~TensorDifferences() override { std::filesystem::remove_all(folder_); }

  /// A file with one tensor "x".
  template <class T>
  std::string write(const std::string& name, const std::string& dtype,
                    const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    std::string file = safetensors_file(
        "{\"x\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + std::to_string(values.size()) +
            "],\"data_offsets\":[0," + std::to_string(bytes) + "]}}",
        bytes);
    std::memcpy(file.data() + (file.size() - bytes), values.data(), bytes);
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << file;
    return path;
  }

  template <class T>
  TensorDifference difference(const std::string& dtype, const std::vector<T>& a,
                              const std::vector<T>& b) {
    const auto result = compare_safetensors(write("a", dtype, a), write("b", dtype, b));
    EXPECT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->tensors.size(), 1u);
    return result->tensors.front();
  }

  std::filesystem::path folder_;
};

TEST_F(TensorDifferences, LargestAbsoluteAndRelativeMayBeElsewhere) {
  // |100 - 104| = 4, relative 4/104; |1 - 2| = 1, relative 1/2.
  const TensorDifference d = difference<double>("F64", {100, 1, 7}, {104, 2, 7});
  EXPECT_EQ(d.max_abs, 4.0);
  EXPECT_EQ(d.max_rel, 0.5);
  EXPECT_EQ(d.shape, std::vector<std::int64_t>{3});
}

TEST_F(TensorDifferences, EveryType) {
  EXPECT_EQ(difference<float>("F32", {1.5f, 2}, {1.5f, -2}).max_abs, 4.0);
  // 1.0 against 1.5 in both 16-bit types.
  EXPECT_EQ(difference<std::uint16_t>("F16", {0x3C00}, {0x3E00}).max_abs, 0.5);
  EXPECT_EQ(difference<std::uint16_t>("BF16", {0x3F80}, {0x3FC0}).max_abs, 0.5);
  EXPECT_EQ(difference<std::int32_t>("I32", {INT32_MIN}, {INT32_MAX}).max_abs, 4294967295.0);
  // Neighbours that are one number as doubles.
  EXPECT_EQ(difference<std::int64_t>("I64", {(1ll << 60) + 1}, {1ll << 60}).max_abs, 1.0);
  EXPECT_EQ(difference<std::int64_t>("I64", {INT64_MIN}, {INT64_MAX}).max_abs, 0x1p64);
}

TEST_F(TensorDifferences, WhatIsNotFiniteEqualsOnlyItsLike) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  EXPECT_EQ(difference<double>("F64", {nan, kInf, 0.0}, {nan, kInf, -0.0}).max_abs, 0.0);
  EXPECT_EQ(difference<double>("F64", {nan}, {1.0}).max_abs, kInf);
  EXPECT_EQ(difference<double>("F64", {kInf}, {-kInf}).max_rel, kInf);
  EXPECT_EQ(difference<double>("F64", {1e308}, {-1e308}).max_rel, 2.0);
}

TEST_F(TensorDifferences, TheLastElementOfALargeTensorCounts) {
  // 2^20 bytes are compared at a time; 300,001 floats are 1.14 times that.
  std::vector<float> a(300'001, 1.0f), b = a;
  b.back() = 1.25f;
  EXPECT_EQ(difference<float>("F32", a, b).max_abs, 0.25);
}

TEST_F(TensorDifferences, OtherShapesAreRefusedAndMissingFilesNamed) {
  const std::string a = write<float>("a", "F32", {1, 2});
  const std::string b = write<float>("b", "F32", {1});
  const std::string c = write<std::int32_t>("c", "I32", {1, 2});
  const auto shapes = compare_safetensors(a, b);
  ASSERT_FALSE(shapes.ok());
  EXPECT_EQ(shapes.error().code, "different-tensor");
  EXPECT_EQ(shapes.error().where, b);
  EXPECT_EQ(compare_safetensors(a, c).error().code, "different-tensor");
  EXPECT_EQ(compare_safetensors(a, folder_.string()).error().code, "not-a-file");
  EXPECT_EQ(compare_safetensors(a, (folder_ / "none").string()).error().code, "file-not-found");
}

}  // namespace
}  // namespace bayplan
