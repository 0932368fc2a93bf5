// Claims about whole runs of one process, without torch: repeatable results, memory and wire as
// predicted, the files that a run leaves.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "executor/comm/local.h"
#include "executor/comm/recording.h"
#include "executor/data/data_source.h"
#include "executor/device_null.h"
#include "executor/run.h"
#include "tests/property/random_program.h"
#include "tests/unit/executor/hash_device.h"

namespace bayplan::exec {
namespace {

using bayplan::test::lower_tiny;
using bayplan::test::random_plan;
using bayplan::test::TinyPlan;

RunResult run(const Program& program, const DeviceFactory& devices, RunOptions options = {}) {
  const auto data = synthetic_data(3, program.job.seq, 13);
  options.deadline_seconds = 20;
  const auto result = run_local(program, devices, *data, data.get(), options);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : RunResult{};
}

std::filesystem::path fresh_path(const std::string& name) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("bayplan_" + name + "_" + std::to_string(::getpid()) + "_" +
                     ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::filesystem::remove_all(path);
  return path;
}

TEST(RunLocal, SameResultWhateverTheThreadsDo) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const TinyPlan tiny = random_plan(seed);
    const Program program = lower_tiny(tiny);
    const RunResult first = run(program, test::hash_devices(), {.steps = 3});
    EXPECT_EQ(first.state_hash.size(), 32u);
    for (int again = 0; again < 2; ++again) {
      const RunResult other = run(program, test::hash_devices(), {.steps = 3});
      EXPECT_EQ(other.state_hash, first.state_hash) << to_string(tiny);
      EXPECT_EQ(other.losses, first.losses);
      EXPECT_EQ(other.grad_norms, first.grad_norms);
    }
  }
}

TEST(RunLocal, InitialStateDoesNotDependOnTheLayout) {
  // No step: the hash is that of the initial state, gathered from different shards.
  const auto hash = [](int pp, int dp, int zero) {
    return run(lower_tiny({.pp = pp, .dp = dp, .micro_batches = 2, .zero = zero, .tied = true}),
               test::hash_devices(), {.steps = 0})
        .state_hash;
  };
  // The groups and so the toy device's values are the same for equal pp only up to padding.
  EXPECT_EQ(hash(2, 1, 0), hash(1, 1, 0));
  EXPECT_EQ(hash(1, 2, 0), hash(1, 1, 0));
  EXPECT_EQ(hash(2, 2, 1), hash(1, 1, 0));
  EXPECT_EQ(hash(4, 3, 1), hash(1, 1, 0));
}

TEST(RunLocal, HighWaterIsThePredictedPeakAndWireIsAsPredicted) {
  for (std::uint64_t seed = 100; seed < 140; ++seed) {
    const TinyPlan tiny = random_plan(seed);
    const Program program = lower_tiny(tiny);
    const RunResult result =
        run(program, null_devices(), {.steps = 2, .eval_samples = program.job.global_batch});
    std::size_t arenas = 0;
    for (int rank = 0; rank < program.world_size(); ++rank) {
      for (const std::int64_t bytes : program.class_of(rank).arena_bytes) arenas += bytes > 0;
    }
    ASSERT_EQ(result.memory.size(), arenas);
    for (const MemoryReport& m : result.memory) {
      EXPECT_EQ(m.measured_bytes, m.predicted_bytes) << to_string(tiny) << " rank " << m.rank;
    }
    for (const WireReport& w : result.wire) {
      EXPECT_EQ(w.sent_bytes, w.predicted_bytes)
          << to_string(tiny) << " rank " << w.rank << " " << instruction_name(w.collective) << " "
          << purpose_name(w.purpose);
    }
    EXPECT_EQ(result.wire.empty(), program.world_size() == 1);
  }
}

TEST(RunLocal, TimelineHoldsTheLastSteps) {
  const Program program = lower_tiny({.pp = 2, .dp = 2, .micro_batches = 3});
  const Timeline t = run(program, null_devices(), {.steps = 5, .timeline_steps = 2}).timeline;
  EXPECT_TRUE(t.measured);
  EXPECT_EQ(t.fingerprint, program.fingerprint);
  EXPECT_EQ(t.step_times.size(), 2u);
  std::size_t instructions = 0;
  for (int r = 0; r < 4; ++r)
    instructions += program.list(r, ProgramKind::kTrainStep).instructions.size();
  ASSERT_EQ(t.events.size(), 2 * instructions);
  EXPECT_EQ(t.events.front().step, 3);
  EXPECT_EQ(t.events.back().step, 4);
  for (const TimelineEvent& e : t.events) {
    EXPECT_LE(e.ready, e.start);
    EXPECT_LE(e.start, e.end);
    const InstructionList& list = program.list(e.rank, ProgramKind::kTrainStep);
    const Range waits = list.instructions[e.instruction.index()].waits;
    EXPECT_LT(e.instruction.index(), list.instructions.size());
    EXPECT_LE(waits.begin, waits.end);
  }
  EXPECT_FALSE(t.memory.empty());
}

TEST(RunLocal, EvaluatesWhenDueAndAtTheEnd) {
  const Program program = lower_tiny({.pp = 2, .micro_batches = 2});
  const auto losses = [&](std::int64_t steps, std::int64_t every) {
    return run(program, test::hash_devices(),
               {.steps = steps, .eval_every = every, .eval_samples = 4})
        .eval_losses.size();
  };
  EXPECT_EQ(losses(5, 2), 3u);  // after steps 2 and 4, and at the end
  EXPECT_EQ(losses(4, 2), 2u);
  EXPECT_EQ(losses(4, 0), 1u);
}

TEST(RunLocal, WritesMetricsModelAndDump) {
  const auto directory = fresh_path("out");
  const auto dump = fresh_path("dump");
  const Program program =
      lower_tiny({.pp = 2, .dp = 2, .micro_batches = 2, .zero = 1, .tied = true});
  std::int64_t seen = 0;
  RunOptions options{.steps = 3, .output_directory = directory, .dump_state = dump};
  options.on_step = [&](const StepMetrics& m) { EXPECT_EQ(m.step, seen++); };
  const RunResult result = run(program, test::hash_devices(), options);
  EXPECT_EQ(seen, 3);
  EXPECT_EQ(result.checkpoint, (directory / "model.safetensors").string());

  std::ifstream metrics(directory / "metrics.jsonl");
  std::string line;
  for (std::size_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(std::getline(metrics, line));
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["step"], step);
    EXPECT_EQ(json["loss"].get<double>(), result.losses[step]);
    EXPECT_EQ(json["grad_norm"].get<double>(), result.grad_norms[step]);
    EXPECT_GT(json["tokens_per_second"].get<double>(), 0.0);
  }
  EXPECT_FALSE(std::getline(metrics, line));

  const auto names = [](const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::uint64_t length = 0;
    file.read(reinterpret_cast<char*>(&length), sizeof length);
    std::string text(length, ' ');
    file.read(text.data(), static_cast<std::streamsize>(length));
    EXPECT_EQ((length + 8) % 4096, 0u);
    std::vector<std::string> out;
    const auto json = nlohmann::json::parse(text);
    for (const auto& [name, value] : json.items()) {
      if (name != "__metadata__") out.push_back(name);
    }
    return out;
  };
  std::size_t parameters = 0;
  for (const ParameterGroup& g : program.parameter_groups) parameters += g.parameters.size();
  EXPECT_EQ(names(directory / "model.safetensors").size(), parameters);
  EXPECT_EQ(names(dump).size(), 3 * parameters + 1);  // fp32: weights, two moments, and the step
  std::filesystem::remove_all(directory);
  std::filesystem::remove(dump);
}

TEST(RunLocal, RefusesAnOutputDirectoryInUse) {
  const auto directory = fresh_path("used");
  std::filesystem::create_directories(directory / "something");
  const Program program = lower_tiny({});
  const auto data = synthetic_data(0, 4, 13);
  const auto result =
      run_local(program, null_devices(), *data, nullptr, {.output_directory = directory.string()});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, "output-in-use");
  EXPECT_EQ(result.error().where, directory.string());
  std::filesystem::remove_all(directory);
}

TEST(RunLocal, RefusesADumpThatCannotBeWrittenBeforeItTrains) {
  const Program program = lower_tiny({});
  const auto data = synthetic_data(0, 4, 13);
  const auto result = run_local(program, null_devices(), *data, nullptr,
                                {.dump_state = "/nonexistent/state.safetensors"});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, "output-not-writable");
  EXPECT_EQ(result.error().where, "/nonexistent/state.safetensors");
}

TEST(RunLocal, RefusesOptionsThatDoNotMatchTheProgram) {
  const Program program = lower_tiny({.micro_batches = 2});
  const auto data = synthetic_data(0, 4, 13);
  const auto other = synthetic_data(0, 5, 13);
  EXPECT_EQ(run_local(program, null_devices(), *data, data.get(), {.eval_samples = 3}).error().code,
            "bad-option");
  EXPECT_EQ(run_local(program, null_devices(), *other, nullptr, {}).error().code, "bad-data");
}

TEST(RunRank, EqualsRunLocal) {
  // run_rank() over the same communicators: reports travel as messages instead of in memory.
  const Program program = lower_tiny({.pp = 2, .dp = 2, .micro_batches = 2, .zero = 1});
  const RunOptions options{.steps = 3, .deadline_seconds = 20, .timeline_steps = 2};
  const RunResult local = run(program, test::hash_devices(), options);
  const auto data = synthetic_data(3, program.job.seq, 13);
  const auto communicators = make_local_communicators(4, {.deadline_seconds = 20});
  std::vector<RunResult> results(4);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      const auto result =
          run_rank(program, test::hash_devices(), *communicators[r], *data, nullptr, options);
      ASSERT_TRUE(result.ok()) << result.error().message;
      results[r] = *result;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(results[0].state_hash, local.state_hash);
  EXPECT_EQ(results[0].losses, local.losses);
  EXPECT_EQ(results[0].memory.size(), local.memory.size());
  EXPECT_EQ(results[0].timeline.events.size(), local.timeline.events.size());
  ASSERT_EQ(results[0].wire.size(), local.wire.size());
  for (std::size_t i = 0; i < local.wire.size(); ++i) {
    EXPECT_EQ(results[0].wire[i].rank, local.wire[i].rank);
    EXPECT_EQ(results[0].wire[i].sent_bytes, local.wire[i].sent_bytes);
  }
  EXPECT_TRUE(results[3].losses.empty());  // whole on rank 0 only
}

TEST(RunRank, OneRecordedRankNeedsNoOthers) {
  const Program program = lower_tiny({.pp = 2, .dp = 2, .micro_batches = 2, .zero = 1});
  const auto data = synthetic_data(3, program.job.seq, 13);
  RecordingCommunicator communicator(0, 4);
  const auto result = run_rank(program, null_devices(), communicator, *data, nullptr, {.steps = 2});
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_FALSE(result->wire.empty());
  for (const WireReport& w : result->wire) EXPECT_EQ(w.sent_bytes, w.predicted_bytes);
}

TEST(RunRank, AnotherPlanOnAnotherRankIsRefused) {
  Program program = lower_tiny({.dp = 2});
  Program other = program;
  other.fingerprint += 1;
  const auto data = synthetic_data(3, program.job.seq, 13);
  const auto communicators = make_local_communicators(2, {.deadline_seconds = 20});
  std::vector<std::string> codes(2);
  std::thread thread([&] {
    codes[1] = run_rank(other, null_devices(), *communicators[1], *data, nullptr, {}).error().code;
  });
  codes[0] = run_rank(program, null_devices(), *communicators[0], *data, nullptr, {}).error().code;
  thread.join();
  EXPECT_EQ(codes[0], "run-aborted");
  EXPECT_EQ(codes[1], "message-mismatch");
}

}  // namespace
}  // namespace bayplan::exec
