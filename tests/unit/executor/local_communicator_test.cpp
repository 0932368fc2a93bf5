// Claims about the local communicator: what arrives where, in which order sums run, and what
// partners who disagree or do not come are told.
#include "executor/comm/local.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "executor/comm/recording.h"
#include "executor/error.h"

namespace bayplan::exec {
namespace {

using Work = std::function<void(Communicator&)>;

/// Runs `work` on every rank; what a rank threw, or kAborted "" for none.
std::vector<std::string> on_ranks(int world, const Work& work, double deadline = 20) {
  const auto ranks = make_local_communicators(world, {.deadline_seconds = deadline});
  std::vector<std::string> failures(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      try {
        work(*ranks[static_cast<std::size_t>(r)]);
      } catch (const ExecutorError& e) {
        failures[static_cast<std::size_t>(r)] = describe(e);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return failures;
}

CallSite site(std::string_view what = "i7 test", Purpose purpose = Purpose::kGrads) {
  return {3, what, purpose};
}

template <class T>
std::byte* bytes(std::vector<T>& v) {
  return reinterpret_cast<std::byte*>(v.data());
}

TEST(LocalCommunicator, MessagesOfOneTagArriveInOrderAndTagsDoNotMix) {
  on_ranks(2, [](Communicator& c) {
    std::vector<int> a = {1}, b = {2}, x = {3};
    if (c.rank() == 0) {
      const std::vector<Message> m = {
          {true, 1, 5, bytes(a), 4}, {true, 1, 5, bytes(b), 4}, {true, 1, 9, bytes(x), 4}};
      c.exchange(site(), m);
    } else {
      std::vector<int> first(1), second(1), other(1);
      const std::vector<Message> m = {{false, 0, 9, bytes(other), 4},
                                      {false, 0, 5, bytes(first), 4},
                                      {false, 0, 5, bytes(second), 4}};
      c.exchange(site(), m);
      EXPECT_EQ(first[0], 1);
      EXPECT_EQ(second[0], 2);
      EXPECT_EQ(other[0], 3);
    }
  });
}

TEST(LocalCommunicator, AGroupOfCrossingMessagesCompletes) {
  on_ranks(2, [](Communicator& c) {
    std::vector<int> mine = {c.rank() + 10}, theirs = {0};
    const std::vector<Message> m = {{true, 1 - c.rank(), 0, bytes(mine), 4},
                                    {false, 1 - c.rank(), 0, bytes(theirs), 4}};
    c.exchange(site(), m);
    EXPECT_EQ(theirs[0], 11 - c.rank());
  });
}

TEST(LocalCommunicator, AllGatherFillsAllShards) {
  const std::vector<int> members = {0, 2};
  on_ranks(3, [&](Communicator& c) {
    if (c.rank() == 1) return;
    std::vector<int> data(4, -1);
    const std::size_t self = c.rank() == 0 ? 0 : 1;
    data[2 * self] = 100 * c.rank();
    data[2 * self + 1] = 100 * c.rank() + 1;
    c.all_gather(site(), members, bytes(data), 8);
    EXPECT_EQ(data, (std::vector<int>{0, 1, 200, 201}));
  });
}

TEST(LocalCommunicator, SumsRunInRankOrderWhateverTheArrival) {
  // (1 + 2^-24) + 2^-24 = 1 in fp32 (each tie rounds to even), but 1 + (2^-24 + 2^-24) = 1 + 2^-23.
  const float tiny = 0x1p-24f;
  const std::vector<float> contribution = {1.0f, tiny, tiny};
  const std::vector<int> members = {0, 1, 2};
  for (int late = 0; late < 3; ++late) {
    on_ranks(3, [&](Communicator& c) {
      if (c.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::vector<float> data(7, contribution[static_cast<std::size_t>(c.rank())]);
      c.all_reduce(site(), members, bytes(data), 7, DType::kFp32);
      EXPECT_EQ(data, std::vector<float>(7, 1.0f));
    });
  }
}

TEST(LocalCommunicator, ReduceScatterSumsTheOwnShard) {
  const std::vector<int> members = {0, 1};
  on_ranks(2, [&](Communicator& c) {
    std::vector<double> data = {1, 2, 3, 4};
    for (double& d : data) d *= c.rank() + 1;
    c.reduce_scatter(site(), members, bytes(data), 2, DType::kFp64);
    // Sum of rank 0's x and rank 1's 2x.
    const std::size_t own = c.rank() == 0 ? 0 : 2;
    EXPECT_EQ(data[own], c.rank() == 0 ? 3.0 : 9.0);
    EXPECT_EQ(data[own + 1], c.rank() == 0 ? 6.0 : 12.0);
  });
}

TEST(LocalCommunicator, AllReduceOfFewerElementsThanMembers) {
  const std::vector<int> members = {0, 1, 2, 3};
  on_ranks(4, [&](Communicator& c) {
    std::vector<double> data = {1.5, 2.0};
    c.all_reduce(site(), members, bytes(data), 2, DType::kFp64);
    EXPECT_EQ(data, (std::vector<double>{6.0, 8.0}));
  });
}

TEST(LocalCommunicator, BroadcastCopiesFromTheRoot) {
  const std::vector<int> members = {0, 1, 2};
  on_ranks(3, [&](Communicator& c) {
    std::vector<int> data = {c.rank()};
    c.broadcast(site(), members, bytes(data), 4, 2);
    EXPECT_EQ(data[0], 2);
  });
}

TEST(LocalCommunicator, CountsWhatTheDefinitionsSay) {
  const std::vector<int> members = {0, 1, 2};
  on_ranks(3, [&](Communicator& c) {
    std::vector<float> data(9, 1.0f);
    c.all_gather(site("", Purpose::kParams), members, bytes(data), 12);
    c.reduce_scatter(site("", Purpose::kGrads), members, bytes(data), 3, DType::kFp32);
    // 4 elements over 3 members: [0,1) [1,2) [2,4). Member 2 sends 2 elements to their owners and
    // its own 2 to 2 others; members 0 and 1 send 3 and 2·1.
    c.all_reduce(site("", Purpose::kNorm), members, bytes(data), 4, DType::kFp32);
    const std::vector<WireCount> counts = c.wire();
    ASSERT_EQ(counts.size(), 3u);
    EXPECT_EQ(counts[0].collective, InstructionKind::kAllGather);
    EXPECT_EQ(counts[0].bytes, 2 * 12);
    EXPECT_EQ(counts[1].bytes, 2 * 12);
    EXPECT_EQ(counts[2].bytes, c.rank() == 2 ? (2 + 4) * 4 : (3 + 2) * 4);
  });
}

TEST(LocalCommunicator, WrongMessageSizeNamesBothSides) {
  const auto failures = on_ranks(2, [](Communicator& c) {
    std::vector<int> data(2);
    const std::vector<Message> m = {
        {c.rank() == 0, 1 - c.rank(), 0, bytes(data), c.rank() == 0 ? 8 : 4}};
    c.exchange(site(c.rank() == 0 ? "i3 send" : "i5 recv"), m);
  });
  EXPECT_EQ(failures[1],
            "rank 1 failed at step 3, instruction i5 recv: rank 1 expects 4 bytes, rank 0 sends 8 "
            "(i3 send)");
  EXPECT_NE(failures[0].find(failures[1]), std::string::npos);  // the other is told why
}

TEST(LocalCommunicator, DifferentCollectivesNameBothSides) {
  const std::vector<int> members = {0, 1};
  const auto failures = on_ranks(2, [&](Communicator& c) {
    std::vector<float> data(4);
    if (c.rank() == 0) {
      c.all_gather(site(), members, bytes(data), 8);
    } else {
      c.reduce_scatter(site(), members, bytes(data), 2, DType::kFp32);
    }
  });
  const std::string all = failures[0] + failures[1];
  EXPECT_NE(all.find("calls all_gather for grads of 8 bytes of uint8"), std::string::npos) << all;
  EXPECT_NE(all.find("calls reduce_scatter for grads of 8 bytes of fp32"), std::string::npos)
      << all;
}

TEST(LocalCommunicator, AMissingPartnerIsNamedAtTheDeadline) {
  const std::vector<int> members = {0, 1, 2};
  const auto failures = on_ranks(
      3,
      [&](Communicator& c) {
        c.barrier(site());  // the deadline is about the missing call, not about thread start
        std::vector<float> data(4);
        if (c.rank() != 1) c.all_reduce(site(), members, bytes(data), 4, DType::kFp32);
      },
      2.0);
  const std::string all = failures[0] + failures[2];
  EXPECT_NE(all.find("gave up waiting at step 3, instruction i7 test: rank 1 did not reach "
                     "all_reduce within 2"),
            std::string::npos)
      << all;
  EXPECT_EQ(failures[1], "");
}

TEST(LocalCommunicator, AbortWakesWhoeverWaits) {
  const auto failures = on_ranks(2, [&](Communicator& c) {
    if (c.rank() == 0) {
      c.abort("rank 0 has had enough");
    } else {
      c.barrier(site("barrier"));
    }
  });
  EXPECT_EQ(failures[1], "rank 1 failed at step 3, barrier: rank 0 has had enough");
}

TEST(LocalCommunicator, WithoutDataRanksMeetAndSizesAreStillChecked) {
  const std::vector<int> members = {0, 1};
  const auto failures = on_ranks(2, [&](Communicator& c) {
    c.all_reduce(site(), members, nullptr, 1 << 20, DType::kFp32);
    c.all_gather(site(), members, nullptr, c.rank() == 0 ? 8 : 16);
  });
  EXPECT_NE((failures[0] + failures[1]).find("all_gather for grads of 16 bytes"),
            std::string::npos);
}

TEST(RecordingCommunicator, RemembersCallsAndCountsBytesWithoutPartners) {
  const std::vector<int> members = {0, 1, 2, 3};
  RecordingCommunicator c(1, 4);
  const std::vector<Message> m = {{true, 2, 0, nullptr, 100, InstructionKind::kSendActivation},
                                  {false, 0, 0, nullptr, 50, InstructionKind::kRecvActivation}};
  c.exchange(site(), m);
  c.reduce_scatter(site(), members, nullptr, 10, DType::kFp32);
  const std::vector<RecordedCall> calls = c.calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].messages.size(), 2u);
  EXPECT_EQ(calls[1].members, members);
  EXPECT_EQ(calls[1].bytes, 4 * 40);
  const std::vector<WireCount> counts = c.wire();
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_EQ(counts[0].bytes, 100);
  EXPECT_EQ(counts[1].bytes, 3 * 40);
}

}  // namespace
}  // namespace bayplan::exec
