#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "planner/formats/timeline_json.h"
#include "simulator/engine/simulate.h"
#include "simulator/report/breakdown.h"
#include "simulator/report/compare.h"
#include "simulator/report/perfetto.h"
#include "simulator/report/summary.h"
#include "tests/unit/simulator/tiny_costs.h"

namespace bayplan::sim {
namespace {

using bayplan::test::lower_tiny;
using nlohmann::json;
using test::cluster_of;
using test::stage_costs;

SimulationResult simulated(const Program& program, const CostModel& costs, int steps = 1,
                           DeviceClass device = DeviceClass::kGpu) {
  SimulateOptions options;
  options.steps = steps;
  auto result = simulate(program, cluster_of(device, program.world_size()), costs, options);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(*result);
}

TEST(Breakdown, PartsAddUpToTheStep) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Program program = lower_tiny(bayplan::test::random_plan(seed));
    for (const DeviceClass device : {DeviceClass::kGpu, DeviceClass::kCpu}) {
      const SimulationResult result = simulated(program, unit_costs(), 2, device);
      EXPECT_NEAR(result.breakdown.total().value, result.step_time.mid.value, 1e-15);
    }
  }
}

TEST(Breakdown, BubbleOfAPipelineIsTheTextbookOne) {
  // 4 stages, 8 micro-batches, F=1 B=2, free messages: each rank computes 24 of 33.
  const Program program = lower_tiny({.pp = 4, .micro_batches = 8, .layers = 4});
  const SimulationResult result = simulated(program, stage_costs(program, {}));
  EXPECT_NEAR(result.breakdown.compute.value, 24e-12, 1e-18);
  EXPECT_NEAR(result.breakdown.bubble.value, 9e-12, 1e-18);
  EXPECT_EQ(result.breakdown.exposed_communication.value, 0.0);
}

TEST(Breakdown, CommunicationThatNothingHidesIsExposed) {
  // One micro-batch on two replicas: the reductions follow the only backward.
  const Program program = lower_tiny({.dp = 2, .micro_batches = 1, .layers = 1});
  const SimulationResult result = simulated(program, stage_costs(program, {.collective = 5}));
  const double compute = 3e-12;
  EXPECT_NEAR(result.breakdown.compute.value, compute, 1e-18);
  EXPECT_NEAR(result.breakdown.exposed_communication.value, result.step_time.mid.value - compute,
              1e-18);
}

TEST(Perfetto, TraceParsesAndMatchesEveryMessage) {
  const Program program =
      lower_tiny({.pp = 3, .dp = 2, .micro_batches = 4, .zero = 1, .layers = 3});
  const SimulationResult result = simulated(program, unit_costs(), 2);
  const json trace = json::parse(perfetto_trace(program, result.timeline));

  std::map<std::int64_t, std::pair<int, int>> flows;  // id -> (starts, ends)
  std::map<std::int64_t, double> flow_start;
  std::map<std::pair<int, std::string>, double> counter_time;
  std::int64_t slices = 0;
  std::set<int> named;
  for (const json& e : trace.at("traceEvents")) {
    const std::string phase = e.at("ph");
    if (phase == "M") {
      if (e.at("name") == "process_name") named.insert(e.at("pid").get<int>());
      continue;
    }
    const double ts = e.at("ts");
    EXPECT_GE(ts, 0.0);
    if (phase == "X") {
      EXPECT_GE(e.at("dur").get<double>(), 0.0);
      EXPECT_TRUE(e.at("args").contains("bytes"));
      ++slices;
    } else if (phase == "s") {
      ++flows[e.at("id")].first;
      flow_start[e.at("id")] = ts;
    } else if (phase == "f") {
      ++flows[e.at("id")].second;
      EXPECT_GE(ts, flow_start.at(e.at("id")));  // written behind its start
    } else {
      ASSERT_EQ(phase, "C");
      double& last = counter_time.try_emplace({e.at("pid"), e.at("name")}, -1.0).first->second;
      EXPECT_GT(ts, last);
      last = ts;
    }
  }
  EXPECT_EQ(named.size(), 6u);
  // 2 steps · 2 replicas · 4 micro-batches · 2 boundaries · 2 directions
  EXPECT_EQ(flows.size(), 64u);
  for (const auto& [id, ends] : flows) EXPECT_EQ(ends, std::pair(1, 1)) << id;
  std::int64_t visible = 0;
  for (const TimelineEvent& e : result.timeline.events) {
    const auto kind =
        program.list(e.rank, ProgramKind::kTrainStep).instructions[e.instruction.index()].kind;
    visible += kind == InstructionKind::kRelease ? 0 : 1;
  }
  EXPECT_EQ(slices, visible);
}

TEST(Perfetto, SlicesOfOneTrackNestOrFollow) {
  const Program program = lower_tiny({.pp = 3, .micro_batches = 5, .layers = 3});
  const SimulationResult result =
      simulated(program, stage_costs(program, {.forward = 3, .backward = 5, .message = 2}));
  const json trace = json::parse(perfetto_trace(program, result.timeline));
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  for (const json& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    const double begin = e.at("ts"), length = e.at("dur");
    tracks[{e.at("pid"), e.at("tid")}].emplace_back(begin, begin + length);
  }
  for (auto& [track, slices] : tracks) {
    for (const auto& a : slices) {
      for (const auto& b : slices) {
        const bool apart = a.second <= b.first + 1e-12 || b.second <= a.first + 1e-12;
        const bool nested = (a.first <= b.first && b.second <= a.second) ||
                            (b.first <= a.first && a.second <= b.second);
        EXPECT_TRUE(apart || nested);
      }
    }
  }
}

TEST(Compare, ATimelineEqualsItself) {
  const Program program = lower_tiny({.pp = 2, .dp = 2, .micro_batches = 2, .layers = 2});
  const SimulationResult result = simulated(program, unit_costs(), 2);
  const auto labels = timeline_labels(program, ProgramKind::kTrainStep);
  const auto comparison = compare_timelines(labels, result.timeline, result.timeline);
  ASSERT_TRUE(comparison.ok());
  EXPECT_DOUBLE_EQ(comparison->step_ratio(), 1.0);
  for (const auto* table : {&comparison->kinds, &comparison->streams, &comparison->ranks}) {
    EXPECT_FALSE(table->empty());
    for (const ComparisonRow& row : *table) {
      EXPECT_DOUBLE_EQ(row.predicted.value, row.measured.value) << row.name;
    }
  }
  EXPECT_NE(comparison_text(*comparison).find("forward"), std::string::npos);
}

TEST(Compare, FindsTheKindThatWasMispredicted) {
  const Program program = lower_tiny({.pp = 2, .micro_batches = 3, .layers = 2});
  const auto predicted =
      simulated(program, stage_costs(program, {.forward = 1000, .backward = 2000}));
  const auto measured =
      simulated(program, stage_costs(program, {.forward = 1000, .backward = 4000}));
  const auto comparison = compare_timelines(timeline_labels(program, ProgramKind::kTrainStep),
                                            predicted.timeline, measured.timeline);
  ASSERT_TRUE(comparison.ok());
  for (const ComparisonRow& row : comparison->kinds) {
    if (row.name == instruction_name(InstructionKind::kForward)) {
      EXPECT_DOUBLE_EQ(row.ratio(), 1.0);
    }
    if (row.name == instruction_name(InstructionKind::kBackward)) {
      EXPECT_DOUBLE_EQ(row.ratio(), 0.5);
    }
  }
}

TEST(Compare, RefusesAnotherProgram) {
  const Program program = lower_tiny({.pp = 2, .micro_batches = 2, .layers = 2});
  const SimulationResult result = simulated(program, unit_costs());
  Timeline other = result.timeline;
  other.fingerprint ^= 1;
  const auto labels = timeline_labels(program, ProgramKind::kTrainStep);
  const auto comparison = compare_timelines(labels, result.timeline, other);
  ASSERT_FALSE(comparison.ok());
  EXPECT_EQ(comparison.error().code, "different-programs");
  const auto empty = compare_timelines(
      labels, result.timeline,
      Timeline{result.timeline.fingerprint, ProgramKind::kTrainStep, true, {}, {}, {}});
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().code, "empty-timeline");
}

TEST(Summary, FitsOneScreen) {
  const Program program = lower_tiny({.pp = 4, .dp = 2, .micro_batches = 4, .layers = 4});
  const std::string text = summary_text(program, simulated(program, unit_costs()));
  std::size_t lines = 0, width = 0, longest = 0;
  for (const char c : text) {
    width = c == '\n' ? 0 : width + 1;
    lines += c == '\n' ? 1 : 0;
    longest = std::max(longest, width);
  }
  EXPECT_LE(lines, 20u);
  EXPECT_LE(longest, 100u);
  for (const char* word : {"step ", "tokens/s", "compute", "bubble", "pp 3, 2 ranks"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
  }
}

TEST(TimelineJson, ReadsBackAsWritten) {
  const Program program = lower_tiny({.pp = 2, .micro_batches = 2, .layers = 2});
  SimulationResult result = simulated(program, unit_costs(), 2);
  result.timeline.measured = true;
  const TimelineLabels labels = timeline_labels(program, ProgramKind::kTrainStep);
  const auto read = parse_timeline(timeline_text(result.timeline, labels), "t.json");
  ASSERT_TRUE(read.ok()) << read.error().message << " " << read.error().where;
  EXPECT_EQ(read->timeline.fingerprint, program.fingerprint);
  EXPECT_TRUE(read->timeline.measured);
  EXPECT_EQ(read->timeline.events, result.timeline.events);
  EXPECT_EQ(read->timeline.step_times, result.timeline.step_times);
  EXPECT_EQ(read->timeline.memory.size(), result.timeline.memory.size());
  EXPECT_EQ(read->labels, labels);
}

TEST(TimelineJson, NamesWhatIsWrong) {
  const Program program = lower_tiny({.micro_batches = 1, .layers = 1});
  const SimulationResult result = simulated(program, unit_costs());
  const std::string good =
      timeline_text(result.timeline, timeline_labels(program, ProgramKind::kTrainStep));
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto read = parse_timeline(text, "t.json");
    EXPECT_FALSE(read.ok()) << to;
    return read.ok() ? std::string() : read.error().code + " " + read.error().where;
  };
  EXPECT_EQ(broken("bayplan.timeline/1", "bayplan.timeline/9").find("unknown"), 0u);
  EXPECT_NE(broken("\"fingerprint\":\"", "\"fingerprint\":\"x").find("/fingerprint"),
            std::string::npos);
  EXPECT_NE(broken("[0,0,0,", "[7,0,0,").find("bad-row t.json:/events/0"), std::string::npos);
  EXPECT_NE(broken("[0,0,1,", "[0,0,0,").find("bad-row t.json:/events/1"), std::string::npos);
  EXPECT_NE(broken("[0,0,1,", "[0,0,1.5,").find("bad-row t.json:/events/1"), std::string::npos);
  EXPECT_FALSE(parse_timeline(good.substr(0, good.size() / 2), "t.json").ok());
}

}  // namespace
}  // namespace bayplan::sim
