// The strict JSON reader: every refusal names the place and what would be right.
#include "planner/formats/json_cursor.h"

#include <gtest/gtest.h>

#include <string>

namespace bayplan {
namespace {

Error parse_error(const std::string& text) {
  const auto document = parse_json(text, "f.json");
  EXPECT_FALSE(document.ok()) << text;
  return document.ok() ? Error{} : document.error();
}

TEST(ParseJson, TruncatedTextIsCalledThat) {
  const Error error = parse_error("{\n  \"a\": [1, 2");
  EXPECT_EQ(error.code, "truncated-json");
  // "2" is the 12th character of the second line, and nothing follows it.
  EXPECT_EQ(error.where, "f.json:2:13");
}

TEST(ParseJson, EmptyTextIsTruncated) { EXPECT_EQ(parse_error(" \n").code, "truncated-json"); }

TEST(ParseJson, MalformedTextNamesLineAndColumn) {
  const Error error = parse_error("{\n  \"a\": 1,\n  b: 2\n}");
  EXPECT_EQ(error.code, "malformed-json");
  EXPECT_EQ(error.where, "f.json:3:3");  // the "b" without quotes
}

TEST(ParseJson, RefusesWhatReadersMustNotGuess) {
  EXPECT_EQ(parse_error(R"({"a": 1, "a": 2})").code, "duplicate-field");
  EXPECT_EQ(parse_error("{} {}").code, "malformed-json");
  EXPECT_EQ(parse_error("{\"a\": 1e999}").code, "malformed-json");
  EXPECT_EQ(parse_error("\"\xff\"").code, "malformed-json");
  EXPECT_EQ(parse_error(std::string(100, '[') + std::string(100, ']')).code, "malformed-json");
}

TEST(ParseJson, VeryDeepNestingNeitherCrashesNorRecurses) {
  EXPECT_EQ(parse_error(std::string(1'000'000, '[')).code, "malformed-json");
}

struct Sample {
  std::int64_t seq = 0;
  double rate = 1.0;
  Bytes memory;
};

Result<Sample> read_sample(const std::string& text) {
  BAYPLAN_TRY(document, parse_json(text, "f.json"));
  Sample sample;
  ObjectReader r{JsonCursor(document)};
  r.required("seq", sample.seq, [](const JsonCursor& c) { return c.integer(1, 4096); });
  r.optional("learning_rate", sample.rate, [](const JsonCursor& c) { return c.number(0.0, 1.0); });
  r.optional("memory", sample.memory, [](const JsonCursor& c) { return c.bytes(); });
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  return sample;
}

TEST(ObjectReader, ReadsFieldsAndKeepsDefaults) {
  const auto sample = read_sample(R"({"seq": 128, "memory": "1GiB"})");
  ASSERT_TRUE(sample.ok());
  EXPECT_EQ(sample->seq, 128);
  EXPECT_EQ(sample->rate, 1.0);
  EXPECT_EQ(sample->memory, 1_GiB);
}

TEST(ObjectReader, IntegerMayBeWrittenAsAWholeReal) {
  EXPECT_EQ(read_sample(R"({"seq": 128.0})")->seq, 128);
}

TEST(ObjectReader, MisspeltFieldIsUnknownNotMissing) {
  const auto sample = read_sample(R"({"seqq": 128})");
  ASSERT_FALSE(sample.ok());
  EXPECT_EQ(sample.error().code, "unknown-field");
  EXPECT_EQ(sample.error().hint, "nearest known field: 'seq'");
}

struct Refusal {
  const char* text;
  const char* code;
  const char* where;
};
class RefusedObject : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedObject, NamesCodeAndPointer) {
  const auto sample = read_sample(GetParam().text);
  ASSERT_FALSE(sample.ok()) << GetParam().text;
  EXPECT_EQ(sample.error().code, GetParam().code) << GetParam().text;
  EXPECT_EQ(sample.error().where, GetParam().where) << GetParam().text;
  EXPECT_FALSE(sample.error().hint.empty()) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(
    Objects, RefusedObject,
    ::testing::Values(
        Refusal{"[]", "wrong-type", "f.json"}, Refusal{"{}", "missing-field", "f.json"},
        Refusal{R"({"seq": "128"})", "wrong-type", "f.json:/seq"},
        Refusal{R"({"seq": 1.5})", "wrong-type", "f.json:/seq"},
        Refusal{R"({"seq": 0})", "out-of-range", "f.json:/seq"},
        Refusal{R"({"seq": -3})", "out-of-range", "f.json:/seq"},
        Refusal{R"({"seq": 4097})", "out-of-range", "f.json:/seq"},
        Refusal{R"({"seq": 18446744073709551615})", "out-of-range", "f.json:/seq"},
        Refusal{R"({"seq": 1e30})", "out-of-range", "f.json:/seq"},
        Refusal{R"({"seq": 1, "learning_rate": true})", "wrong-type", "f.json:/learning_rate"},
        Refusal{R"({"seq": 1, "learning_rate": 2})", "out-of-range", "f.json:/learning_rate"},
        Refusal{R"({"seq": 1, "memory": 5})", "wrong-type", "f.json:/memory"},
        Refusal{R"({"seq": 1, "memory": "5"})", "bad-quantity", "f.json:/memory"},
        Refusal{R"({"seq": 1, "memory": "0GB"})", "out-of-range", "f.json:/memory"}));

}  // namespace
}  // namespace bayplan
