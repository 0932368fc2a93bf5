// Claims about one rank: which samples it reads, which bytes it marks, what it says it is doing.
#include "executor/rank_runner.h"

#include <gtest/gtest.h>

#include <map>

#include "executor/comm/recording.h"
#include "executor/device_null.h"
#include "executor/trace/rank_status.h"
#include "tests/property/random_program.h"

namespace bayplan::exec {
namespace {

using bayplan::test::lower_tiny;

/// Sample i is the number i, repeated.
struct NumberedData final : public DataSource {
  std::int64_t sample_count() const override { return 1000; }
  std::int64_t seq() const override { return 4; }
  void read(std::int64_t sample, std::int32_t* ids, std::int32_t* labels) const override {
    for (int t = 0; t < 4; ++t) ids[t] = labels[t] = static_cast<std::int32_t>(sample);
  }
};

struct NotingDevice final : public Device {
  std::map<int, std::int32_t> sample_of_micro_batch;
  std::vector<std::byte> memory;
  bool uses_workspace = false;

  std::byte* allocate_arena(Tier, std::int64_t bytes) override {
    memory.resize(static_cast<std::size_t>(bytes));
    return memory.data();
  }
  void attach(const Program&, int) override {}
  void initialize(const ComputeCall&) override {}
  void load_micro_batch(const ComputeCall& call, const std::int32_t* ids,
                        const std::int32_t*) override {
    sample_of_micro_batch[call.instruction->micro_batch] = ids[0];
  }
  void unit_compute(const ComputeCall&) override {}
  void accumulate(const ComputeCall&) override {}
  void gradient_norm(const ComputeCall&) override {}
  bool optimizer_step(const ComputeCall&) override { return true; }
  std::int64_t workspace_used() const override { return 0; }
  bool last_call_used_workspace() const override { return uses_workspace; }
};

TEST(RankRunner, MicroBatchJOfReplicaDIsBlockJTimesDpPlusD) {
  const Program program = lower_tiny({.dp = 3, .micro_batches = 2});
  const NumberedData data;
  for (int rank = 0; rank < 3; ++rank) {
    NotingDevice device;
    RecordingCommunicator communicator(rank, 3);
    RankRunner runner(program, rank, device, communicator, {}, {});
    // Step 5 of batches of 6 starts at sample 30.
    runner.run({.kind = ProgramKind::kTrainStep, .step = 5, .data = &data, .first_sample = 30});
    EXPECT_EQ(device.sample_of_micro_batch,
              (std::map<int, std::int32_t>{{0, 30 + rank}, {1, 33 + rank}}));
  }
}

TEST(ArenaUse, MarksWhatWasExecutedAndTheWorkspaceAsFarAsUsed) {
  const Program program = lower_tiny({});
  const RankClass& c = program.classes[0];
  const InstructionList& list = program.list(0, ProgramKind::kTrainStep);
  std::size_t forward = 0;
  while (list.instructions[forward].kind != InstructionKind::kForward) ++forward;
  ArenaUse use(program, 0);
  EXPECT_EQ(use.high_water(Tier::kDevice), 0);
  use.begin(list, InstructionId(forward));
  use.executed(list, InstructionId(forward), false);
  // The highest aligned end of what the first forward touches, computed here from its accesses.
  std::int64_t expected = 0;
  std::int64_t declared = 0;
  const Range range = list.instructions[forward].accesses;
  for (std::int32_t a = range.begin; a < range.end; ++a) {
    const Access& access = list.accesses[static_cast<std::size_t>(a)];
    const Buffer& b = c.buffers[access.buffer.index()];
    if (b.role == BufferRole::kWorkspace) {
      declared = access.bytes - scratch_bytes(program, list.instructions[forward]);
      continue;
    }
    expected = std::max(expected, b.offset + round_up(b.bytes, kTensorAlignment));
  }
  EXPECT_EQ(use.high_water(Tier::kDevice), expected);
  EXPECT_EQ(use.workspace_declared(), declared);
}

TEST(ArenaUse, LiveBytesReturnToThePersistentOnes) {
  const Program program = lower_tiny({.pp = 2, .micro_batches = 3});
  NotingDevice device;
  RecordingCommunicator communicator(0, 2);
  RankRunner runner(program, 0, device, communicator, {}, {});
  const std::int64_t before = runner.memory().live(Tier::kDevice);
  const NumberedData data;
  const ProgramTrace trace =
      runner.run({.kind = ProgramKind::kTrainStep, .data = &data, .record = true});
  EXPECT_EQ(runner.memory().live(Tier::kDevice), before);
  std::int64_t sum = 0;
  for (const LiveBytesChange& change : trace.live) sum += change.bytes;
  EXPECT_EQ(sum, 0);
  EXPECT_EQ(trace.memory.front().live_bytes, before);
  EXPECT_EQ(trace.memory.back().live_bytes, before);
}

TEST(RankStatus, SaysWhatTheRankDoesInOneLine) {
  const Program program = lower_tiny({.pp = 2, .micro_batches = 2});
  RecordingCommunicator communicator(1, 2);
  RankStatus status;
  status.program = ProgramKind::kTrainStep;
  status.step = 12;
  std::array<char, 200> out{};
  const auto line = [&] {
    return std::string(out.data(),
                       write_status(program, 1, status, communicator, out.data(), out.size()));
  };
  EXPECT_EQ(line(), "rank 1 at step 12 of train_step, between instructions, waiting for no rank\n");
  status.host.set(Activity::kWaiting, 2);
  status.progress.set(Activity::kRunning, 0);
  EXPECT_EQ(
      line(),
      "rank 1 at step 12 of train_step, instruction i0 recv_activation, waiting for no rank\n");
  status.host.set(Activity::kRunning, 2);
  EXPECT_EQ(current_instruction(status).value, 2);
  // What does not fit is cut, the newline stays.
  EXPECT_EQ(write_status(program, 1, status, communicator, out.data(), 10), 10u);
  EXPECT_EQ(std::string(out.data(), 10), "rank 1 at\n");
}

}  // namespace
}  // namespace bayplan::exec
