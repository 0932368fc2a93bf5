// Claims about null_run(): a sound program means the same under every schedule, and the typical
// defects show as the fault that names them.
#include "executor/null_run.h"

#include <gtest/gtest.h>

#include "tests/property/random_program.h"

namespace bayplan::exec {
namespace {

using bayplan::test::lower_tiny;
using bayplan::test::TinyPlan;

Access access(int buffer, std::int64_t bytes, AccessMode mode) {
  return {BufferId(static_cast<std::int32_t>(buffer)), 0, bytes, mode, false};
}

/// Instruction lists by hand: one rank, buffers of 256 bytes.
struct OneRank {
  Program program;

  OneRank() {
    program.classes.emplace_back();
    program.rank_class = {0};
    program.stage_rank = {0};
  }
  int buffer(std::int64_t offset, bool persistent = false, int identity = 0) {
    Buffer b;
    b.bytes = 256;
    b.offset = offset;
    b.persistent = persistent;
    b.micro_batch = identity;
    program.classes[0].buffers.push_back(b);
    return static_cast<int>(program.classes[0].buffers.size()) - 1;
  }
  int add(InstructionKind kind, Stream stream, std::vector<Access> accesses,
          std::vector<int> waits = {}, int micro_batch = 0) {
    InstructionList& l = list();
    Instruction i;
    i.kind = kind;
    i.stream = stream;
    i.micro_batch = micro_batch;
    i.accesses.begin = static_cast<std::int32_t>(l.accesses.size());
    l.accesses.insert(l.accesses.end(), accesses.begin(), accesses.end());
    i.accesses.end = static_cast<std::int32_t>(l.accesses.size());
    i.waits.begin = static_cast<std::int32_t>(l.waits.size());
    for (const int w : waits) l.waits.push_back(InstructionId(static_cast<std::int32_t>(w)));
    i.waits.end = static_cast<std::int32_t>(l.waits.size());
    l.instructions.push_back(i);
    return static_cast<int>(l.instructions.size()) - 1;
  }
  InstructionList& list() {
    return program.classes[0].programs[static_cast<std::size_t>(ProgramKind::kTrainStep)];
  }
  NullRunResult run(std::uint64_t seed = 0) {
    return null_run(program, ProgramKind::kTrainStep, seed);
  }
};

/// Faults of any of `seeds` schedules.
std::vector<NullFault> faults(OneRank& rank, int seeds = 16) {
  std::vector<NullFault> out;
  for (int seed = 0; seed < seeds; ++seed) {
    for (const NullFinding& f : rank.run(static_cast<std::uint64_t>(seed)).findings) {
      out.push_back(f.fault);
    }
  }
  return out;
}

bool contains(const std::vector<NullFault>& all, NullFault fault) {
  return std::find(all.begin(), all.end(), fault) != all.end();
}

TEST(NullRun, LoweredProgramsMeanTheSameUnderEverySchedule) {
  for (std::uint64_t plan = 0; plan < 40; ++plan) {
    const TinyPlan tiny = bayplan::test::random_plan(plan);
    const Program program = lower_tiny(tiny);
    for (int k = 0; k < kProgramKindCount; ++k) {
      const auto kind = static_cast<ProgramKind>(k);
      const NullRunResult first = null_run(program, kind, 0);
      for (std::uint64_t seed = 1; seed < 6; ++seed) {
        const NullRunResult other =
            null_run(program, kind, seed, {.one_communication_queue = seed % 3 == 0});
        ASSERT_TRUE(other.clean())
            << to_string(tiny) << " " << program_kind_name(kind) << ": rank "
            << other.findings[0].rank << " i" << other.findings[0].instruction.value << " "
            << null_fault_name(other.findings[0].fault) << " " << other.findings[0].message;
        ASSERT_TRUE(other.same_values(first)) << to_string(tiny) << " " << program_kind_name(kind);
        ASSERT_EQ(other.signatures, first.signatures);
      }
    }
  }
}

TEST(NullRun, EqualSeedsGiveEqualSchedules) {
  const Program program = lower_tiny({.pp = 2, .dp = 2, .micro_batches = 4, .zero = 1});
  const auto order = [&](std::uint64_t seed) {
    return null_run(program, ProgramKind::kTrainStep, seed).completions;
  };
  EXPECT_EQ(order(7), order(7));
  EXPECT_NE(order(7), order(8));
}

TEST(NullRun, ValuesDoNotDependOnWhereBuffersLie) {
  Program program = lower_tiny({.pp = 2, .micro_batches = 2});
  const NullRunResult before = null_run(program, ProgramKind::kTrainStep, 1);
  for (RankClass& c : program.classes) {
    std::int64_t next = 0;
    for (Buffer& b : c.buffers) {
      b.offset = next;
      next += round_up(b.bytes, kTensorAlignment);
    }
  }
  EXPECT_TRUE(null_run(program, ProgramKind::kTrainStep, 1).same_values(before));
}

TEST(NullRun, AccumulationOrderIsPartOfTheValue) {
  // acc = acc + a; acc = acc + b is not acc + b + a when sums are rounded.
  OneRank ab;
  int state = ab.buffer(0, true);
  ab.add(InstructionKind::kBackward, Stream::kCompute, {access(state, 256, AccessMode::kUpdate)},
         {}, 0);
  ab.add(InstructionKind::kBackward, Stream::kCompute, {access(state, 256, AccessMode::kUpdate)},
         {}, 1);
  OneRank ba;
  state = ba.buffer(0, true);
  ba.add(InstructionKind::kBackward, Stream::kCompute, {access(state, 256, AccessMode::kUpdate)},
         {}, 1);
  ba.add(InstructionKind::kBackward, Stream::kCompute, {access(state, 256, AccessMode::kUpdate)},
         {}, 0);
  EXPECT_TRUE(ab.run().clean());
  EXPECT_FALSE(ab.run().same_values(ba.run()));
}

TEST(NullRun, UnorderedUseOfOneBufferShowsAsDifferentValues) {
  // The write on the host stream and the read-modify-write on compute are not ordered.
  OneRank rank;
  const int state = rank.buffer(0, true);
  rank.add(InstructionKind::kForward, Stream::kCompute, {access(state, 256, AccessMode::kUpdate)});
  rank.add(InstructionKind::kOptimizerStep, Stream::kHost,
           {access(state, 256, AccessMode::kWrite)});
  bool differs = false;
  const NullRunResult first = rank.run(0);
  for (std::uint64_t seed = 1; seed < 16; ++seed) differs |= !rank.run(seed).same_values(first);
  EXPECT_TRUE(differs);
}

TEST(NullRun, ReportsReadBeforeWrite) {
  OneRank rank;
  const int b = rank.buffer(0);
  rank.add(InstructionKind::kForward, Stream::kCompute, {access(b, 256, AccessMode::kRead)});
  EXPECT_TRUE(contains(faults(rank, 1), NullFault::kUnwritten));
}

TEST(NullRun, ReportsPartlyWrittenRead) {
  OneRank rank;
  const int b = rank.buffer(0);
  rank.add(InstructionKind::kForward, Stream::kCompute, {access(b, 128, AccessMode::kWrite)});
  rank.add(InstructionKind::kForward, Stream::kCompute, {access(b, 256, AccessMode::kRead)});
  EXPECT_TRUE(contains(faults(rank, 1), NullFault::kUnwritten));
}

TEST(NullRun, ReportsUseAfterRelease) {
  OneRank rank;
  const int b = rank.buffer(0);
  rank.add(InstructionKind::kForward, Stream::kCompute, {access(b, 256, AccessMode::kWrite)});
  rank.add(InstructionKind::kRelease, Stream::kCompute, {access(b, 256, AccessMode::kWrite)});
  rank.add(InstructionKind::kBackward, Stream::kCompute, {access(b, 256, AccessMode::kRead)});
  EXPECT_EQ(faults(rank, 1), std::vector{NullFault::kReleased});
}

TEST(NullRun, ReportsLiveBuffersThatShareBytes) {
  OneRank rank;
  const int a = rank.buffer(0);
  const int b = rank.buffer(128);
  rank.add(InstructionKind::kForward, Stream::kCompute, {access(a, 256, AccessMode::kWrite)});
  rank.add(InstructionKind::kForward, Stream::kCompute, {access(b, 256, AccessMode::kWrite)});
  rank.add(InstructionKind::kForward, Stream::kCompute, {access(a, 256, AccessMode::kRead)});
  const std::vector<NullFault> found = faults(rank, 1);
  EXPECT_TRUE(contains(found, NullFault::kOverwrite));
  EXPECT_TRUE(contains(found, NullFault::kForeign));
}

TEST(NullRun, ReportsWaitsThatCannotBeMet) {
  OneRank rank;
  const int b = rank.buffer(0, true);
  rank.add(InstructionKind::kForward, Stream::kCompute, {access(b, 256, AccessMode::kRead)}, {1});
  rank.add(InstructionKind::kOptimizerStep, Stream::kHost, {access(b, 256, AccessMode::kRead)},
           {0});
  EXPECT_TRUE(contains(faults(rank, 1), NullFault::kDeadlock));
}

TEST(NullRun, ReportsIndicesThatPointNowhere) {
  OneRank rank;
  const int b = rank.buffer(0, true);
  rank.add(InstructionKind::kForward, Stream::kCompute, {access(b + 5, 256, AccessMode::kRead)});
  rank.add(InstructionKind::kForward, Stream::kCompute, {access(b, 512, AccessMode::kRead)});
  rank.add(InstructionKind::kForward, Stream::kCompute, {access(b, 256, AccessMode::kRead)}, {99});
  EXPECT_TRUE(contains(faults(rank, 1), NullFault::kMalformed));
}

/// Two pipeline ranks that send to each other first and receive then.
Program crossing_sends(bool fused) {
  Program program;
  program.mesh.pp = 2;
  program.rank_class = {0, 1};
  program.stage_rank = {0, 1};
  for (int rank = 0; rank < 2; ++rank) {
    RankClass c;
    Buffer b;
    b.bytes = 256;
    b.persistent = true;
    b.offset = 0;
    c.buffers.push_back(b);
    b.offset = 256;
    c.buffers.push_back(b);
    InstructionList& l = c.programs[static_cast<std::size_t>(ProgramKind::kTrainStep)];
    for (const bool send : {true, false}) {
      Instruction i;
      // Rank 0 sends activations and receives gradients, rank 1 the opposite.
      i.kind =
          send ? (rank == 0 ? InstructionKind::kSendActivation : InstructionKind::kSendGradient)
               : (rank == 0 ? InstructionKind::kRecvGradient : InstructionKind::kRecvActivation);
      i.stream = Stream::kP2p;
      i.peer_stage = 1 - rank;
      i.unit = UnitId(0);
      i.boundary = 0;
      i.fuse = fused ? 0 : -1;
      i.accesses = {send ? 0 : 1, send ? 1 : 2};
      l.accesses.push_back(
          access(send ? 0 : 1, 256, send ? AccessMode::kRead : AccessMode::kWrite));
      l.instructions.push_back(i);
    }
    program.classes.push_back(c);
  }
  return program;
}

TEST(NullRun, UnbufferedCrossingSendsDeadlockUnlessFused) {
  const NullRunResult apart = null_run(crossing_sends(false), ProgramKind::kTrainStep, 0);
  ASSERT_EQ(apart.findings.size(), 2u);
  EXPECT_EQ(apart.findings[0].fault, NullFault::kDeadlock);
  EXPECT_TRUE(null_run(crossing_sends(true), ProgramKind::kTrainStep, 0).clean());
}

TEST(NullRun, ReportsPartnersThatDisagreeAboutBytes) {
  Program program = crossing_sends(true);
  program.classes[1].programs[static_cast<std::size_t>(ProgramKind::kTrainStep)].accesses[1].bytes =
      128;
  const NullRunResult result = null_run(program, ProgramKind::kTrainStep, 0);
  ASSERT_FALSE(result.clean());
  EXPECT_EQ(result.findings[0].fault, NullFault::kMismatch);
  EXPECT_EQ(result.findings[0].message, "receives 128 bytes, rank 0 sends 256");
}

}  // namespace
}  // namespace bayplan::exec
