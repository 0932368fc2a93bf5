#include "planner/formats/calibration_json.h"

#include <gtest/gtest.h>

#include <string>

namespace bayplan {
namespace {

Calibration sample() {
  Calibration c;
  c.machine = "Test CPU";
  c.libraries = "torch 0";
  c.cores = 2;
  c.operators = {{OperatorKind::kLinear,
                  Phase::kForward,
                  DType::kFp32,
                  {{{16, 64}, {16}, {16, 64}}},
                  {1e9, 2e9, 3e9, 4.5e9},
                  {2e9, 3e9, 4e9, 5e9}},
                 {OperatorKind::kGelu,
                  Phase::kBackwardInput,
                  DType::kBf16,
                  {{{64}, {64}, {1}}},
                  {7e9},
                  {8e9}}};
  c.streams = {{DType::kFp32, 1e9, 2e9, 3e9}};
  c.threads = {{OperatorKind::kLinear, 2, 0.5, 0.9, Seconds(1e-4), Seconds(1e-2)}};
  c.copy_bytes = 5e9;
  c.fill_bytes = 6e9;
  c.memory_slowdown = 1.25;
  c.crowding = {0.0, 1.0};
  c.oversubscription = 1.1;
  c.wake_idle = Seconds(5e-6);
  c.wake_busy = Seconds(50e-6);
  c.instruction = Seconds(1e-7);
  return c;
}

Result<Calibration> parse(const std::string& text) {
  BAYPLAN_TRY(document, parse_json(text, "c.json"));
  return read_calibration(JsonCursor(document));
}

TEST(CalibrationJson, ReadsBackAsWritten) {
  const auto read = parse(calibration_text(sample()));
  ASSERT_TRUE(read.ok()) << read.error().message << " " << read.error().where;
  EXPECT_EQ(*read, sample());
}

/// Error code and place after one replacement in a good file.
std::string broken(const std::string& from, const std::string& to) {
  std::string text = calibration_text(sample());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const auto read = parse(text);
  return read.ok() ? "accepted" : read.error().code + " " + read.error().where;
}

TEST(CalibrationJson, NamesWhatIsWrong) {
  EXPECT_NE(broken("\"cores\": 2", "\"cores\": 0").find("c.json:/cores"), std::string::npos);
  EXPECT_NE(broken("\"cores\": 2", "\"cores\": 3").find("wrong-count c.json:/crowding"),
            std::string::npos);
  EXPECT_NE(broken("\"linear\"", "\"linaer\"").find("c.json:/threads/0/operator"),
            std::string::npos);
  EXPECT_NE(broken("\"copy\": \"5", "\"copy\": \"-5").find("c.json:/copy"), std::string::npos);
  EXPECT_NE(broken("\"copy\"", "\"kopy\"").find("c.json"), std::string::npos);
  EXPECT_NE(broken("bayplan.calibration/1", "bayplan.calibration/2").find("c.json:/schema"),
            std::string::npos);
}

TEST(CalibrationJson, GridsAreWholeAndAscend) {
  Calibration c = sample();
  c.operators[0].busy.pop_back();
  EXPECT_NE(parse(calibration_text(c)).error().where.find("/operators/0/busy"), std::string::npos);
  c = sample();
  c.operators[0].axes[0] = {64, 16};
  EXPECT_EQ(parse(calibration_text(c)).error().code, "not-ascending");
}

}  // namespace
}  // namespace bayplan
