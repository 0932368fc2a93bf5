// verify(), one property at a time: the smallest change that breaks it, and what is said about it.
// Whether it notices everything that matters is shown by tests/property/mutation_test.cpp.
#include "planner/program/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "planner/program/text.h"
#include "tests/property/editable_list.h"
#include "tests/property/random_program.h"

namespace bayplan {
namespace {

using test::EditableList;
using test::lower_tiny;
using test::TinyPlan;
using Entry = EditableList::Entry;

/// 2 stages, 1F1B, 3 micro-batches; stage 0 has embedding and a block, stage 1 a block and head.
Program pipeline() {
  TinyPlan plan;
  plan.pp = 2;
  plan.micro_batches = 3;
  return lower_tiny(plan);
}

/// 2 replicas of 1 stage.
Program replicas(int zero) {
  TinyPlan plan;
  plan.dp = 2;
  plan.zero = zero;
  plan.micro_batches = 2;
  return lower_tiny(plan);
}

void edit(Program& program, std::size_t rank_class,
          const std::function<void(EditableList&)>& change,
          ProgramKind kind = ProgramKind::kTrainStep, bool keep_later = false) {
  InstructionList& list = program.classes[rank_class].programs[static_cast<std::size_t>(kind)];
  EditableList editable(list);
  change(editable);
  list = editable.build(keep_later);
}

std::size_t find(EditableList& list, const std::function<bool(const Instruction&)>& which) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (which(list[i].instruction)) return i;
  }
  ADD_FAILURE() << "no such instruction";
  return 0;
}

auto is(InstructionKind kind, std::int32_t micro_batch = -1, std::int32_t unit = -1) {
  return [=](const Instruction& i) {
    return i.kind == kind && (micro_batch < 0 || i.micro_batch == micro_batch) &&
           (unit < 0 || i.unit.value == unit);
  };
}

/// Gives `rank` a class of its own, equal to the one it had, and returns its index.
std::size_t set_apart(Program& program, std::size_t rank) {
  program.classes.push_back(program.class_of(static_cast<int>(rank)));
  program.rank_class[rank] = static_cast<std::int32_t>(program.classes.size()) - 1;
  return program.classes.size() - 1;
}

/// Makes every group of two messages two calls, the second first if `swapped`.
void split_groups(Program& p, std::size_t rank_class, bool swapped) {
  edit(p, rank_class, [&](EditableList& list) {
    for (std::size_t i = 0; i + 1 < list.entries.size(); ++i) {
      Instruction& first = list[i].instruction;
      Instruction& second = list[i + 1].instruction;
      if (first.fuse < 0 || first.fuse != second.fuse) continue;
      first.fuse = second.fuse = -1;
      if (swapped) list.swap(i, i + 1);
    }
  });
}

std::string all_messages(const std::vector<VerifyFinding>& findings) {
  std::string s;
  for (const VerifyFinding& f : findings) {
    s += std::string(violation_name(f.violation)) + ": " + f.message + '\n';
  }
  return s;
}

void expect_found(const Program& program, Violation violation, const std::string& message) {
  const std::vector<VerifyFinding> findings = verify(program);
  const bool found = std::any_of(findings.begin(), findings.end(), [&](const VerifyFinding& f) {
    return f.violation == violation && f.message.find(message) != std::string::npos;
  });
  EXPECT_TRUE(found) << "expected " << violation_name(violation) << " with \"" << message
                     << "\", found:\n"
                     << all_messages(findings);
}

void expect_only(const Program& program, Violation violation) {
  const std::vector<VerifyFinding> findings = verify(program);
  ASSERT_FALSE(findings.empty());
  for (const VerifyFinding& f : findings) {
    EXPECT_EQ(f.violation, violation) << violation_name(f.violation) << ": " << f.message;
  }
}

TEST(VerifyProgress, MessagesThatAreNotGroupedDeadlock1F1B) {
  // Stage 0 sends activation 1 before it receives gradient 0; stage 1 sends gradient 0 before it
  // receives activation 1. Unbuffered, each waits for the other to receive.
  Program p = pipeline();
  split_groups(p, 0, false);
  split_groups(p, 1, true);
  expect_only(p, Violation::kDeadlock);
  expect_found(p, Violation::kDeadlock, "its partner");
}

TEST(VerifyProgress, AnyOrderInsideAGroupCompletes) {
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) {
    const std::size_t i = find(list, [](const Instruction& x) { return x.fuse >= 0; });
    ASSERT_EQ(list[i + 1].instruction.fuse, list[i].instruction.fuse);
    list.swap(i, i + 1);
  });
  EXPECT_EQ(all_messages(verify(p)), "");
}

TEST(VerifyProgress, WhatOnlySeparateStreamsCanDoStallsInOneQueue) {
  // Tied weights: stage 1 joins the sum of the two copies before it sends its last gradient, and
  // stage 0 needs that gradient before it can join. On two streams the send overtakes the sum.
  TinyPlan plan;
  plan.pp = 2;
  plan.tied = true;
  Program p = lower_tiny(plan);
  edit(p, 1, [](EditableList& list) {
    const std::size_t send = find(list, is(InstructionKind::kSendGradient));
    ASSERT_EQ(list[send + 1].instruction.kind, InstructionKind::kRelease);
    const std::size_t sum =
        find(list, [](const Instruction& i) { return i.purpose == Purpose::kTiedGrads; });
    ASSERT_LT(send, sum);
    list.move(send, sum);
    list.move(send, sum);
  });
  expect_only(p, Violation::kQueueProgress);
}

TEST(VerifyMatching, LostReceiveNamesTheSend) {
  Program p = pipeline();
  edit(p, 1,
       [](EditableList& list) { list.erase(find(list, is(InstructionKind::kRecvActivation, 2))); });
  expect_found(p, Violation::kUnmatched, "send_act stage 0 chunk 0 mb 2");
  expect_found(p, Violation::kUnmatched, "is never received by rank 1");
}

TEST(VerifyMatching, MemberThatNeverJoinsIsNamed) {
  Program p = replicas(0);
  edit(p, set_apart(p, 1),
       [](EditableList& list) { list.erase(find(list, is(InstructionKind::kAllReduce))); });
  expect_found(p, Violation::kUnmatched, "is never joined by rank 1");
}

TEST(VerifyMatching, MembersThatReduceInDifferentOrder) {
  Program p = replicas(0);
  edit(p, set_apart(p, 1), [](EditableList& list) {
    const std::size_t first = find(list, is(InstructionKind::kAllReduce));
    ASSERT_EQ(list[first + 1].instruction.kind, InstructionKind::kAllReduce);
    list[first + 1].waits = list[first].waits;
    list.swap(first, first + 1);
  });
  expect_only(p, Violation::kGroupOrder);
}

TEST(VerifyMatching, MessagesThatOvertakeOneAnother) {
  // Both sides count to three, but stage 0 sends 0 2 1.
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) {
    list.swap(find(list, is(InstructionKind::kSendActivation, 1)),
              find(list, is(InstructionKind::kSendActivation, 2)));
  });
  expect_found(p, Violation::kGroupOrder, "of different micro-batches");
}

TEST(VerifyMatching, PartnersThatDisagreeAboutBytes) {
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) {
    list[find(list, is(InstructionKind::kSendActivation))].accesses[0].bytes -= 4;
  });
  expect_found(p, Violation::kSizeMismatch, "expects 256 bytes");
}

TEST(VerifyHazards, EveryWaitOfAPipelineIsNeeded) {
  const Program p = pipeline();
  int waits = 0;
  for (std::size_t c = 0; c < 2; ++c) {
    const InstructionList& list =
        p.classes[c].programs[static_cast<std::size_t>(ProgramKind::kTrainStep)];
    for (std::size_t i = 0; i < list.instructions.size(); ++i) {
      for (std::int32_t w = 0; w < list.instructions[i].waits.size(); ++w) {
        Program mutant = p;
        edit(mutant, c, [&](EditableList& e) { e[i].waits.erase(e[i].waits.begin() + w); });
        EXPECT_FALSE(verify(mutant).empty()) << to_text(list, InstructionId(i));
        ++waits;
      }
    }
  }
  // Stage 0: 3 sends for their forward, 3 backwards for their gradient, norm's sum and the step.
  // Stage 1: 3 forwards, 3 sends, sum and step. The rest is reuse of bytes and end_step.
  EXPECT_GE(waits, 16);
}

TEST(VerifyHazards, DroppedWaitIsARaceBetweenTheTwo) {
  Program p = pipeline();
  edit(p, 1, [](EditableList& list) {
    list[find(list, is(InstructionKind::kForward, 0))].waits.clear();
  });
  expect_found(p, Violation::kRace, "i0 p2p recv_act stage 1 chunk 0 mb 0");
}

TEST(VerifyHazards, ReleaseBeforeTheLastUse) {
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) {
    const std::size_t release = find(list, is(InstructionKind::kRelease));
    list.move(release, release - 1);
  });
  expect_found(p, Violation::kUseAfterRelease, "behind its release");
}

TEST(VerifyHazards, SecondRelease) {
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) {
    Entry copy = list[find(list, is(InstructionKind::kRelease))];
    copy.id = list.size();
    const std::size_t end = list.size() - 1;
    list.entries.insert(list.entries.begin() + static_cast<std::ptrdiff_t>(end), copy);
  });
  expect_found(p, Violation::kUseAfterRelease, "released before");
}

TEST(VerifyHazards, BufferThatIsNeverReleasedLeaks) {
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) {
    const std::size_t last = list.size() - 2;  // before end_step: gradients of a group
    ASSERT_EQ(list[last].instruction.kind, InstructionKind::kRelease);
    list.erase(last);
  });
  expect_only(p, Violation::kLeak);
}

TEST(VerifyHazards, PersistentBufferIsNotReleased) {
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) {
    Access whole = list[find(list, is(InstructionKind::kForward))].accesses[0];
    list[find(list, is(InstructionKind::kRelease))].accesses.push_back(whole);
  });
  expect_found(p, Violation::kUseAfterRelease, "the next step uses again");
}

TEST(VerifyHazards, OtherRanksSlicesOfAReduceScatterHoldNothing) {
  Program p = replicas(1);
  edit(p, 0, [&](EditableList& list) {
    Entry& step = list[find(list, is(InstructionKind::kOptimizerStep))];
    for (Access& a : step.accesses) {
      if (p.classes[0].buffers[a.buffer.index()].role == BufferRole::kGradients) {
        a.sharded = false;
        a.bytes *= 2;
      }
    }
  });
  expect_found(p, Violation::kUseBeforeWrite, "which nothing wrote before");
}

TEST(VerifyHazards, ForwardBeforeItsInput) {
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) {
    list.swap(find(list, is(InstructionKind::kForward, 0, 0)),
              find(list, is(InstructionKind::kForward, 0, 1)));
  });
  expect_found(p, Violation::kUseBeforeWrite, "boundary_output of unit 0, micro-batch 0");
}

TEST(VerifySharing, TransientOnPersistentBytes) {
  Program p = pipeline();
  std::vector<Buffer>& buffers = p.classes[0].buffers;
  std::find_if(buffers.begin(), buffers.end(), [](const Buffer& b) {
    return !b.persistent;
  })->offset = buffers[0].offset;
  expect_found(p, Violation::kOverlap, "which is persistent");
}

TEST(VerifySharing, BuffersThatAreAliveTogether) {
  Program p = pipeline();
  std::vector<Buffer>& buffers = p.classes[0].buffers;
  const auto of = [&](Region region) {
    return std::find_if(buffers.begin(), buffers.end(),
                        [&](const Buffer& b) { return b.region == region; });
  };
  of(Region::kBoundaryOutput)->offset = of(Region::kSavedForInput)->offset;
  expect_only(p, Violation::kOverlap);
}

TEST(VerifyAccumulation, LaterAdditionMayNotStartTheSumOver) {
  Program p = pipeline();
  edit(p, 0, [&](EditableList& list) {
    Entry& backward = list[find(list, is(InstructionKind::kBackward, 1))];
    for (Access& a : backward.accesses) {
      if (p.classes[0].buffers[a.buffer.index()].role == BufferRole::kGradients)
        a.mode = AccessMode::kWrite;
    }
  });
  expect_only(p, Violation::kAccumulationOrder);
  expect_found(p, Violation::kAccumulationOrder, "starts the sum over");
}

TEST(VerifyAccumulation, DescendingMicroBatches) {
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) {
    std::swap(list[find(list, is(InstructionKind::kBackward, 1, 0))].instruction.micro_batch,
              list[find(list, is(InstructionKind::kBackward, 2, 0))].instruction.micro_batch);
  });
  expect_found(p, Violation::kAccumulationOrder, "behind i");
}

TEST(VerifyAccesses, HalfOfTheParametersIsNotWhatForwardWorksOn) {
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) {
    list[find(list, is(InstructionKind::kForward))].accesses[0].bytes /= 2;
  });
  expect_only(p, Violation::kSizeMismatch);
}

TEST(VerifyAccesses, BufferOfTheWrongSize) {
  Program p = pipeline();
  p.classes[0].buffers[0].bytes += 4;
  expect_found(p, Violation::kSizeMismatch, "what it holds takes");
}

TEST(VerifyAccesses, AnOptimizerHasItsMomentsAndNoOthers) {
  Program lacking = pipeline();
  edit(lacking, 0, [&](EditableList& list) {
    Entry& step = list[find(list, is(InstructionKind::kOptimizerStep))];
    std::erase_if(step.accesses, [&](const Access& a) {
      return lacking.classes[0].buffers[a.buffer.index()].role == BufferRole::kMoment2;
    });
  });
  expect_found(lacking, Violation::kMissing, "does not touch moment2");
  Program surplus = pipeline();
  for (ParameterGroup& g : surplus.parameter_groups) g.optimizer = OptimizerKind::kSgdMomentum;
  expect_found(surplus, Violation::kMalformed, "not its business");
}

TEST(VerifyAccesses, SomebodyElsesBuffer) {
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) {
    Entry& forward = list[find(list, is(InstructionKind::kForward, 0, 1))];
    forward.accesses.push_back(list[find(list, is(InstructionKind::kForward, 0, 0))].accesses[0]);
  });
  expect_found(p, Violation::kMalformed, "not its business");
}

TEST(VerifyCompleteness, EveryInstructionOfAStepIsNeeded) {
  for (const Program& p : {pipeline(), replicas(0), replicas(1)}) {
    for (std::size_t c = 0; c < p.classes.size(); ++c) {
      const std::size_t n = p.classes[c]
                                .programs[static_cast<std::size_t>(ProgramKind::kTrainStep)]
                                .instructions.size();
      for (std::size_t i = 0; i < n; ++i) {
        Program mutant = p;
        edit(mutant, c, [&](EditableList& list) { list.erase(i); });
        EXPECT_FALSE(verify(mutant).empty()) << "without i" << i << " of class " << c;
      }
    }
  }
}

TEST(VerifyCompleteness, LostOptimizerStepIsNamed) {
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) {
    list.erase(find(list, [](const Instruction& i) {
      return i.kind == InstructionKind::kOptimizerStep && i.parameter_group.value == 1;
    }));
  });
  expect_found(p, Violation::kMissing, "the program lacks: optimizer_step group 1");
}

TEST(VerifyCompleteness, NothingComesBehindEndStep) {
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) { list.swap(list.size() - 1, list.size() - 2); });
  expect_found(p, Violation::kMissing, "behind end_step");
}

TEST(VerifyCompleteness, EndStepWaitsForEverything) {
  Program p = replicas(1);
  edit(p, 0, [](EditableList& list) { list[list.size() - 1].waits.clear(); });
  expect_found(p, Violation::kRace, "end_step does not wait for");
}

TEST(VerifyCompleteness, OptimizerBeforeTheNormIsKnown) {
  Program p = replicas(0);
  edit(p, 0, [](EditableList& list) {
    const std::size_t step = find(list, is(InstructionKind::kOptimizerStep));
    const std::size_t sum = find(list, [](const Instruction& i) {
      return i.kind == InstructionKind::kAllReduce && i.purpose == Purpose::kNorm;
    });
    list[step].waits.clear();
    list.move(step, sum);
  });
  expect_found(p, Violation::kUseBeforeWrite, "gradient norm before it is known");
}

TEST(VerifyCompleteness, ReductionBeforeTheLastMicroBatch) {
  Program p = replicas(0);
  edit(p, 0, [](EditableList& list) {
    const std::size_t reduce = find(list, is(InstructionKind::kAllReduce));
    list.move(reduce, find(list, is(InstructionKind::kBackward, 1)));
  });
  expect_found(p, Violation::kUseBeforeWrite, "have yet to be added");
}

TEST(VerifyCompleteness, ReductionOverTheWrongRanks) {
  TinyPlan plan;
  plan.pp = 2;
  plan.dp = 2;
  Program p = lower_tiny(plan);
  CommunicationGroup wrong{"wrong", axis_bit(Axis::kPp), {}};
  p.communication_groups.push_back(wrong);
  for (std::size_t c = 0; c < 2; ++c) {
    edit(p, c, [&](EditableList& list) {
      list[find(list, is(InstructionKind::kAllReduce))].instruction.group =
          CommunicationGroupId(p.communication_groups.size() - 1);
    });
  }
  expect_found(p, Violation::kMissing, "over other ranks");
}

TEST(VerifyBudget, OneByteTooManyIsRefused) {
  const Program p = pipeline();
  const std::int64_t peak = std::max(p.classes[0].arena_bytes[0], p.classes[1].arena_bytes[0]);
  VerifyOptions options;
  options.capacity[0] = peak;
  EXPECT_TRUE(verify(p, options).empty());
  options.capacity[0] = peak - 1;
  const std::vector<VerifyFinding> findings = verify(p, options);
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings.front().violation, Violation::kBudget);
}

TEST(VerifyBudget, DeclaredPeaksAreNotBelowWhatIsUsed) {
  Program arena = pipeline();
  arena.classes[0].arena_bytes[0] -= 1;
  expect_only(arena, Violation::kBudget);
  Program peak = pipeline();
  peak.classes[0].peak_bytes[static_cast<std::size_t>(ProgramKind::kTrainStep)] -= 1;
  expect_only(peak, Violation::kBudget);
}

TEST(VerifyForm, WaitForALaterInstruction) {
  Program p = pipeline();
  edit(
      p, 0, [](EditableList& list) { list[1].waits.push_back(list[5].id); },
      ProgramKind::kTrainStep, true);
  expect_only(p, Violation::kMalformed);
  expect_found(p, Violation::kMalformed, "waits for i5, which is not an earlier instruction");
}

TEST(VerifyForm, GroupCallIsInOnePiece) {
  Program p = pipeline();
  edit(p, 0, [](EditableList& list) {
    const std::size_t i = find(list, [](const Instruction& x) { return x.fuse >= 0; });
    ASSERT_EQ(list[i + 1].instruction.kind, InstructionKind::kRecvGradient);
    list.swap(i + 2, i + 1);  // its release of what was sent comes between
    list.swap(i + 3, i + 2);
    list[i + 1].instruction.stream = Stream::kCompute;
  });
  expect_found(p, Violation::kMalformed, "other instructions stand between them");
}

TEST(VerifyForm, FindingsStopAtTheLimit) {
  Program p = pipeline();
  for (Buffer& b : p.classes[0].buffers) b.offset += 1;
  VerifyOptions options;
  options.max_findings = 3;
  EXPECT_EQ(verify(p, options).size(), 3u);
}

TEST(VerifySymmetry, EqualClassesUnderOtherNamesAreStillSound) {
  TinyPlan plan;
  plan.pp = 2;
  plan.dp = 3;
  plan.zero = 1;
  plan.tied = true;
  plan.micro_batches = 2;
  Program p = lower_tiny(plan);
  set_apart(p, 4);
  EXPECT_EQ(all_messages(verify(p)), "");
}

TEST(VerifySymmetry, OneReplicaThatDiffersIsFound) {
  TinyPlan plan;
  plan.pp = 2;
  plan.dp = 3;
  plan.micro_batches = 3;
  Program p = lower_tiny(plan);
  split_groups(p, set_apart(p, 5), true);
  // Rank 5 is replica 2 of stage 1. Alone, its split group only reorders what stage 0 has grouped.
  EXPECT_EQ(all_messages(verify(p)), "");
  split_groups(p, set_apart(p, 2), false);
  // Now its partner, rank 2, is split too.
  expect_only(p, Violation::kDeadlock);
}

}  // namespace
}  // namespace bayplan
