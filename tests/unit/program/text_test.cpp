// The text form: what it looks like, that it says everything, and that bad text is located.
#include "planner/program/text.h"

#include <gtest/gtest.h>

#include <random>

#include "planner/program/fingerprint.h"
#include "tests/property/random_program.h"

namespace bayplan {
namespace {

Program one_rank() {
  Program p;
  p.rank_class = {0};
  p.stage_rank = {0};
  return p;
}

/// Two buffers and one instruction with every field set.
Program everything_set() {
  Program p = one_rank();
  RankClass& c = p.classes.emplace_back();
  c.pp = 0;
  c.stages = {0, 3};
  c.micro_batches = 7;
  c.arena_bytes = {8192, 256, 0};
  c.peak_bytes = {1, 2, 3, 4};
  Buffer b;
  b.tier = Tier::kHost;
  b.role = BufferRole::kSaved;
  b.region = Region::kSavedForWeight;
  b.region_index = 2;
  b.unit = UnitId(5);
  b.micro_batch = 6;
  b.bytes = 1000;
  b.offset = 256;
  c.buffers.push_back(b);
  Buffer state;
  state.role = BufferRole::kMoment2;
  state.parameter_group = ParameterGroupId(4);
  state.persistent = true;
  state.bytes = 512;
  state.offset = 0;
  c.buffers.push_back(state);
  InstructionList& list = c.programs[static_cast<std::size_t>(ProgramKind::kEvalStep)];
  list.instructions.emplace_back().kind = InstructionKind::kEndStep;
  Instruction i;
  i.kind = InstructionKind::kRecvGradient;
  i.stream = Stream::kNvme;
  i.purpose = Purpose::kTiedGrads;
  i.stage = 1;
  i.chunk = 2;
  i.micro_batch = 3;
  i.unit = UnitId(4);
  i.group = CommunicationGroupId(5);
  i.parameter_group = ParameterGroupId(6);
  i.peer_stage = 7;
  i.boundary = 8;
  i.fuse = 9;
  i.predicate = BufferId(0);
  i.run_time_count = BufferId(1);
  i.accesses = {0, 4};
  i.waits = {0, 1};
  list.accesses = {{BufferId(0), 0, 1000, AccessMode::kRead, false},
                   {BufferId(1), 0, 512, AccessMode::kWrite, false},
                   {BufferId(1), 128, 64, AccessMode::kWrite, true},
                   {BufferId(0), 0, 8, AccessMode::kRead, false}};
  list.waits = {InstructionId(0)};
  list.instructions.push_back(i);
  return p;
}

TEST(ProgramText, WritesEveryFieldThatIsSet) {
  const Program p = everything_set();
  EXPECT_EQ(to_text(p, 0, ProgramKind::kEvalStep),
            "i0 compute end_step\n"
            "i1 nvme recv_grad tied_grads stage 1 chunk 2 mb 3 unit 4 comm 5 group 6 peer 7 "
            "boundary 8 fuse 9 predicate b0 count b1 "
            "reads b0 writes b1 b1[128:192]/shard reads b0[0:8] waits i0\n");
  EXPECT_EQ(to_text(p),
            "class 0 pp 0 stages 0,3 micro_batches 7\n"
            "arena device 8192 host 256 nvme 0\n"
            "peak load 1 train_step 2 eval_step 3 save 4\n"
            "b0 host saved saved_for_weight 2 unit 5 mb 6 bytes 1000 at 256\n"
            "b1 device moment2 group 4 persistent bytes 512 at 0\n"
            "program load\n"
            "program train_step\n"
            "program eval_step\n" +
                to_text(p, 0, ProgramKind::kEvalStep) + "program save\n");
}

TEST(ProgramText, OneInstructionKnowsNoBuffersSoRangesAreWritten) {
  InstructionList list;
  list.accesses = {{BufferId(3), 0, 1000, AccessMode::kUpdate, false}};
  list.instructions.emplace_back().accesses = {0, 1};
  list.instructions.front().kind = InstructionKind::kForward;
  EXPECT_EQ(to_text(list, InstructionId(0)), "i0 compute F updates b3[0:1000]");
}

void expect_equal(const Program& a, const Program& b) {
  ASSERT_EQ(a.classes.size(), b.classes.size());
  for (std::size_t c = 0; c < a.classes.size(); ++c) {
    EXPECT_EQ(a.classes[c].pp, b.classes[c].pp);
    EXPECT_EQ(a.classes[c].stages, b.classes[c].stages);
    EXPECT_EQ(a.classes[c].micro_batches, b.classes[c].micro_batches);
    EXPECT_EQ(a.classes[c].arena_bytes, b.classes[c].arena_bytes);
    EXPECT_EQ(a.classes[c].peak_bytes, b.classes[c].peak_bytes);
    EXPECT_TRUE(a.classes[c].buffers == b.classes[c].buffers);
    EXPECT_TRUE(a.classes[c].programs == b.classes[c].programs);
  }
}

TEST(ProgramText, RoundTripIsExact) {
  const Program p = everything_set();
  const Result<Program> parsed = parse_text(to_text(p), p);
  ASSERT_TRUE(parsed.ok()) << parsed.error().where << ": " << parsed.error().message;
  expect_equal(*parsed, p);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Program lowered = test::lower_tiny(test::random_plan(seed));
    const Result<Program> again = parse_text(to_text(lowered), lowered);
    ASSERT_TRUE(again.ok()) << again.error().where << ": " << again.error().message;
    expect_equal(*again, lowered);
    EXPECT_EQ(again->fingerprint, lowered.fingerprint);
  }
}

TEST(ProgramText, CommentsAndBlankLinesSayNothing) {
  const Program p = everything_set();
  const Result<Program> parsed = parse_text("# a program\n\n" + to_text(p) + "  # end\n", p);
  ASSERT_TRUE(parsed.ok());
  expect_equal(*parsed, p);
}

struct BadText {
  std::string text;
  const char* where;
  const char* message;  // part of it
};

TEST(ProgramText, ErrorsNameTheLineAndTheWord) {
  const std::string head = "class 0 pp 0 stages 0 micro_batches 1\n";
  const std::string body = head + "b0 device saved bytes 256 at 0\nprogram load\n";
  const std::vector<BadText> cases = {
      {"i0 compute F\n", "line 1", "program line"},
      {"hello\n", "line 1", "not \"hello\""},
      {"class 1 pp 0 stages 0 micro_batches 1\n", "line 1", "should be 0"},
      {head + "b1 device saved bytes 256 at 0\n", "line 2", "should be 0"},
      {head + "b0 disk saved bytes 256 at 0\n", "line 2", "\"disk\" is not a tier"},
      {head + "b0 device saved bytes many at 0\n", "line 2", "whole number, not \"many\""},
      {head + "b0 device saved bytes 256\n", "line 2", "line ends where at"},
      {body + "i0 compute forward\n", "line 4", "\"forward\" is not an instruction"},
      {body + "i0 compute F mb\n", "line 4", "line ends where a micro-batch"},
      {body + "i0 compute F reads b1\n", "line 4", "no buffer b1"},
      {body + "i0 compute F reads b0[0:4\n", "line 4", "range like"},
      {body + "i0 compute F reads\n", "line 4", "line ends where a buffer"},
      {body + "i0 compute F unit 3 mb 0\n", "line 4", "did not expect \"mb\""},
      {body + "i1 compute F\n", "line 4", "should be 0"},
      {body + "i0 compute F mb 99999999999\n", "line 4", "whole number"},
      {"", "line 0", "needs class 0"},
  };
  for (const auto& [text, where, message] : cases) {
    const Result<Program> parsed = parse_text(text, one_rank());
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, "bad-program-text");
    EXPECT_EQ(parsed.error().where, where) << text;
    EXPECT_NE(parsed.error().message.find(message), std::string::npos)
        << text << parsed.error().message;
    EXPECT_FALSE(parsed.error().hint.empty());
  }
}

TEST(ProgramText, DamagedTextIsReadOrRefusedButNeverMore) {
  test::TinyPlan plan;
  plan.pp = 2;
  plan.micro_batches = 2;
  const Program program = test::lower_tiny(plan);
  const std::string text = to_text(program);
  std::mt19937_64 random(7);
  for (int n = 0; n < 300; ++n) {
    std::string damaged = text;
    for (int k = 0; k < 3; ++k) {
      const std::size_t at = random() % damaged.size();
      switch (random() % 3) {
        case 0:
          damaged[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          damaged.erase(at, random() % 20);
          break;
        default:
          damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 20));
          break;
      }
    }
    const Result<Program> parsed = parse_text(damaged, program);
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.error().where.rfind("line ", 0), 0u);
    }
  }
}

}  // namespace
}  // namespace bayplan
