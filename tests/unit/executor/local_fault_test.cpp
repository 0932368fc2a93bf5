// Claims about failing ranks of one process: the others stop within the deadline, the error names
// the rank, the instruction and who waited for whom, and no thread is left behind.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "executor/data/data_source.h"
#include "executor/device_null.h"
#include "executor/run.h"
#include "planner/program/text.h"
#include "tests/property/random_program.h"
#include "tests/unit/executor/hash_device.h"

namespace bayplan::exec {
namespace {

using bayplan::test::lower_tiny;
using Kind = FaultInjection::Kind;

constexpr double kDeadline = 1.0;

std::size_t threads_alive() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++n;
  return n;
}

/// A joined thread leaves /proc a moment later.
bool threads_return_to(std::size_t before) {
  for (int i = 0; i < 200; ++i) {
    if (threads_alive() <= before) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

Program four_ranks() {
  return lower_tiny({.pp = 2, .dp = 2, .micro_batches = 3, .zero = 1, .tied = true});
}

Error run_with_fault(const Program& program, const DeviceFactory& devices, FaultInjection fault) {
  const auto data = synthetic_data(3, program.job.seq, 13);
  const auto start = std::chrono::steady_clock::now();
  const auto result =
      run_local(program, devices, *data, nullptr,
                {.steps = 3, .deadline_seconds = kDeadline, .fault = fault, .hash_state = false});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_FALSE(result.ok());
  // The deadline starts at the last call that still went well; the rest is a loaded machine.
  EXPECT_LT(seconds, kDeadline + 10.0);
  return result.ok() ? Error{} : result.error();
}

std::string text_of(const Program& program, int rank, std::int32_t instruction) {
  return to_text(program.list(rank, ProgramKind::kTrainStep), InstructionId(instruction));
}

TEST(LocalFault, AThrowAnywhereIsReportedByTheRankThatThrew) {
  const Program program = four_ranks();
  const std::size_t threads = threads_alive();
  for (int rank = 0; rank < 4; ++rank) {
    const auto n =
        static_cast<std::int32_t>(program.list(rank, ProgramKind::kTrainStep).instructions.size());
    for (std::int32_t at = rank; at < n; at += 7) {
      const Error e = run_with_fault(program, null_devices(), {Kind::kThrow, rank, 1, at});
      EXPECT_EQ(e.code, "rank-failed");
      EXPECT_EQ(e.where, "rank " + std::to_string(rank) + ", step 1");
      EXPECT_EQ(e.message, "rank " + std::to_string(rank) + " failed at step 1, instruction " +
                               text_of(program, rank, at) + ": injected fault");
    }
  }
  EXPECT_TRUE(threads_return_to(threads));
}

TEST(LocalFault, AStallIsBlamedOnTheRankThatStalled) {
  const Program program = four_ranks();
  const std::size_t before = threads_alive();
  struct Case {
    int rank;
    std::int32_t at;
    Error error;
  };
  std::vector<Case> cases;
  for (const int rank : {0, 3}) {
    const InstructionList& list = program.list(rank, ProgramKind::kTrainStep);
    const auto n = static_cast<std::int32_t>(list.instructions.size());
    // Compute, a message and collectives; rank 0 sends activations, rank 3 gradients.
    for (const InstructionKind kind :
         {InstructionKind::kForward, InstructionKind::kBackward, InstructionKind::kReduceScatter,
          InstructionKind::kAllGather,
          rank == 0 ? InstructionKind::kSendActivation : InstructionKind::kSendGradient}) {
      std::int32_t at = 0;
      while (at < n && list.instructions[static_cast<std::size_t>(at)].kind != kind) ++at;
      ASSERT_LT(at, n) << instruction_name(kind);
      cases.push_back({rank, at, {}});
    }
  }
  // At once: each of these runs only waits.
  std::vector<std::thread> threads;
  for (Case& c : cases) {
    threads.emplace_back([&program, &c] {
      c.error = run_with_fault(program, null_devices(), {Kind::kStall, c.rank, 1, c.at});
    });
  }
  for (std::thread& t : threads) t.join();
  for (const Case& c : cases) {
    const std::string rank = "rank " + std::to_string(c.rank);
    EXPECT_EQ(c.error.code, "rank-stalled");
    EXPECT_EQ(c.error.where, rank + ", step 1") << c.error.message;
    EXPECT_NE(c.error.message.find(" gave up waiting at step 1, "), std::string::npos)
        << c.error.message;
    EXPECT_NE(c.error.message.find("; " + rank + " is at step 1 of train_step, instruction " +
                                   text_of(program, c.rank, c.at)),
              std::string::npos)
        << c.error.message;
  }
  EXPECT_TRUE(threads_return_to(before));
}

TEST(LocalFault, MemoryOfAFailedRankIsNotReadAnyMore) {
  // Real buffers: the sanitizer presets see a copy from a rank that has gone.
  const Program program = four_ranks();
  for (std::int32_t at = 0; at < 45; at += 9) {
    const Error e = run_with_fault(program, test::hash_devices(), {Kind::kThrow, at % 4, 0, at});
    EXPECT_EQ(e.code, "rank-failed");
  }
}

TEST(LocalFault, ADeviceThatCannotBeMadeStopsTheOthers) {
  const Program program = four_ranks();
  const DeviceFactory devices = [](int rank) -> std::unique_ptr<Device> {
    if (rank == 2) throw std::runtime_error("no such device");
    return std::make_unique<NullDevice>();
  };
  const Error e = run_with_fault(program, devices, {});
  EXPECT_EQ(e.code, "rank-failed");
  EXPECT_EQ(e.message, "rank 2 failed: no such device");
}

TEST(LocalFault, AnExceptionOfTheDeviceNamesTheInstruction) {
  const Program program = lower_tiny({.pp = 2, .micro_batches = 2});
  struct ThrowingDevice final : public Device {
    std::byte* allocate_arena(Tier, std::int64_t) override { return nullptr; }
    void attach(const Program&, int) override {}
    void initialize(const ComputeCall&) override {}
    void load_micro_batch(const ComputeCall&, const std::int32_t*, const std::int32_t*) override {}
    void unit_compute(const ComputeCall& call) override {
      if (call.rank == 1 && call.instruction->kind == InstructionKind::kBackward) {
        throw std::runtime_error("out of workspace");
      }
    }
    void accumulate(const ComputeCall&) override {}
    void gradient_norm(const ComputeCall&) override {}
    bool optimizer_step(const ComputeCall&) override { return true; }
    std::int64_t workspace_used() const override { return 0; }
    bool last_call_used_workspace() const override { return false; }
  };
  const Error e =
      run_with_fault(program, [](int) { return std::make_unique<ThrowingDevice>(); }, {});
  EXPECT_EQ(e.code, "rank-failed");
  EXPECT_NE(e.message.find("rank 1 failed at step 0, instruction i"), std::string::npos)
      << e.message;
  EXPECT_NE(e.message.find("compute B stage 1 "), std::string::npos) << e.message;
  EXPECT_NE(e.message.find(": out of workspace"), std::string::npos) << e.message;
}

}  // namespace
}  // namespace bayplan::exec
