// Claims about data: which tokens sample i has, and what is wrong with a file that cannot be read.
#include "executor/data/data_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

namespace bayplan::exec {
namespace {

class DataFile : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 ("bayplan_data_" + std::to_string(::getpid()) + "_" +
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& name, const std::string& content) {
    const auto path = (directory_ / name).string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  template <class T>
  std::string write_tokens(const std::string& name, const std::vector<T>& tokens) {
    return write(
        name, std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(T)));
  }
  static std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> sample(const DataSource& d,
                                                                                std::int64_t i) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(d.seq())), labels(ids.size());
    d.read(i, ids.data(), labels.data());
    return {ids, labels};
  }
  static Error error_of(const std::string& path, std::int64_t seq = 4, std::int64_t vocab = 256,
                        Split split = Split::kAll, double held_out = 0.0) {
    const auto data = open_data(path, seq, vocab, split, held_out);
    EXPECT_FALSE(data.ok());
    return data.ok() ? Error{} : data.error();
  }

  std::filesystem::path directory_;
};

using Tokens = std::vector<std::int32_t>;

TEST_F(DataFile, ShufflingReadsEverySampleOnceAnEpochAndDiffersByEpochAndSeed) {
  for (const std::int64_t count : {1, 2, 5, 64, 1000}) {
    // Sample i is the one token i.
    std::vector<std::uint16_t> tokens(static_cast<std::size_t>(count) + 1);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i);
    const auto path = write_tokens("t.bin", tokens);
    const auto order = [&](std::uint64_t seed, std::int64_t epoch) {
      auto data = open_data(path, 1, 2000, Split::kAll, 0.0);
      const auto shuffled = shuffled_data(std::move(*data), seed);
      EXPECT_EQ(shuffled->sample_count(), count);
      Tokens out;
      for (std::int64_t i = 0; i < count; ++i)
        out.push_back(sample(*shuffled, epoch * count + i).first[0]);
      return out;
    };
    Tokens once = order(1, 0);
    if (count == 1000) {
      EXPECT_NE(once, order(1, 1));
      EXPECT_NE(once, order(2, 0));
      EXPECT_EQ(once, order(1, 0));
    }
    std::sort(once.begin(), once.end());
    for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(once[static_cast<std::size_t>(i)], i);
  }
}

TEST_F(DataFile, TextIsReadAsBytesAndLabelsAreTheNextBytes) {
  const auto data = open_data(write("a.txt", "abcdefghi\xff"), 4, 256, Split::kAll, 0.0);
  ASSERT_TRUE(data.ok());
  // 10 bytes: samples abcd|efgh, each labelled with the bytes one further; the 10th is spare.
  EXPECT_EQ((*data)->sample_count(), 2);
  EXPECT_EQ(sample(**data, 0), std::pair(Tokens{97, 98, 99, 100}, Tokens{98, 99, 100, 101}));
  EXPECT_EQ(sample(**data, 1), std::pair(Tokens{101, 102, 103, 104}, Tokens{102, 103, 104, 105}));
  EXPECT_EQ(sample(**data, 2), sample(**data, 0));  // the cursor wraps
  EXPECT_EQ(sample(**data, 5), sample(**data, 1));
}

TEST_F(DataFile, TokensAreUint16OrUint32ByTheVocabulary) {
  const auto small =
      open_data(write_tokens<std::uint16_t>("a.bin", {1, 2, 60000}), 2, 65536, Split::kAll, 0.0);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(sample(**small, 0), std::pair(Tokens{1, 2}, Tokens{2, 60000}));
  const auto large =
      open_data(write_tokens<std::uint32_t>("b.bin", {1, 2, 70000}), 2, 128256, Split::kAll, 0.0);
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(sample(**large, 0), std::pair(Tokens{1, 2}, Tokens{2, 70000}));
}

TEST_F(DataFile, HeldOutSamplesAreTheLastOnesRoundedUp) {
  // 41 bytes, seq 4: 10 samples. 15 % of 10 rounds up to 2.
  std::string text;
  for (int i = 0; i < 41; ++i) text += static_cast<char>('A' + i);
  const std::string path = write("a.txt", text);
  const auto all = open_data(path, 4, 256, Split::kAll, 0.15);
  const auto train = open_data(path, 4, 256, Split::kTrain, 0.15);
  const auto held_out = open_data(path, 4, 256, Split::kHeldOut, 0.15);
  EXPECT_EQ((*all)->sample_count(), 10);
  EXPECT_EQ((*train)->sample_count(), 8);
  EXPECT_EQ((*held_out)->sample_count(), 2);
  EXPECT_EQ(sample(**held_out, 0), sample(**all, 8));
  EXPECT_EQ(sample(**train, 8), sample(**all, 0));  // wraps before the held-out part
}

TEST_F(DataFile, ErrorsNameTheFileAndThePlace) {
  EXPECT_EQ(error_of((directory_ / "none").string()).code, "data-not-readable");
  EXPECT_EQ(error_of(directory_.string()).code, "data-not-readable");
  EXPECT_EQ(error_of(write("empty", "")).code, "data-empty");
  EXPECT_EQ(error_of(write("a.txt", "abc"), 4, 97).code, "vocab-too-small");
  EXPECT_EQ(error_of(write("a.bin", "abc")).code, "data-odd-size");

  const std::string bad = write_tokens<std::uint16_t>("b.bin", {1, 2, 3, 300, 4, 5});
  const Error token = error_of(bad, 2, 256);
  EXPECT_EQ(token.code, "token-out-of-range");
  EXPECT_EQ(token.where, bad);
  // Token number 3 of two bytes each.
  EXPECT_EQ(token.message, "token 300 at byte 6 is not below the vocabulary of 256");

  const Error shorter = error_of(write("c.txt", "abcd"));  // the label of the 4th byte is missing
  EXPECT_EQ(shorter.code, "data-too-short");
  EXPECT_EQ(shorter.message, "file of 4 tokens holds 0 samples of 4 tokens, none for data");
  EXPECT_EQ(error_of(write("d.txt", "abcde"), 4, 256, Split::kTrain, 0.5).code, "data-too-short");
  EXPECT_EQ(error_of(write("e.txt", "abcde"), 4, 256, Split::kAll, 1.0).code, "bad-fraction");
}

TEST(SyntheticData, IsAStreamThatDependsOnSeedAndPositionOnly) {
  const auto whole = synthetic_data(1, 8, 97);
  const auto halves = synthetic_data(1, 4, 97);
  Tokens ids(8), labels(8), first(4), second(4), other(4), unused(4);
  whole->read(5, ids.data(), labels.data());
  halves->read(10, first.data(), unused.data());
  halves->read(11, second.data(), other.data());
  EXPECT_EQ(Tokens(ids.begin(), ids.begin() + 4), first);
  EXPECT_EQ(Tokens(ids.begin() + 4, ids.end()), second);
  EXPECT_EQ(Tokens(ids.begin() + 1, ids.end()), Tokens(labels.begin(), labels.end() - 1));
  for (const std::int32_t t : ids) EXPECT_TRUE(t >= 0 && t < 97);
  Tokens other_seed(8);
  synthetic_data(2, 8, 97)->read(5, other_seed.data(), labels.data());
  EXPECT_NE(ids, other_seed);
}

}  // namespace
}  // namespace bayplan::exec
