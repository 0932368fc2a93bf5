// Claims about the NCCL communicator, over the stand-in: it gives what the local communicator
// gives, and when a rank fails, disagrees or does not come, every rank ends with a reason and
// nothing is left alive.
#include "executor/comm/nccl_communicator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "executor/comm/collective_groups.h"
#include "executor/comm/local.h"
#include "executor/data/data_source.h"
#include "executor/error.h"
#include "executor/run.h"
#include "tests/property/random_program.h"
#include "tests/unit/executor/hash_device.h"
#include "tests/unit/executor/nccl_stand_in.h"

namespace bayplan::exec {
namespace {

using bayplan::test::lower_tiny;
using bayplan::test::random_plan;
using bayplan::test::TinyPlan;
using RankWork = std::function<void(Communicator&)>;
using Seconds = std::chrono::duration<double>;

/// A world of threads over a stand-in of its own.
struct NcclWorld {
  explicit NcclWorld(int world_size) : size(world_size) {
    id = make_nccl_id(stand_in.api());
    for (int r = 0; r < size; ++r) streams.push_back(stand_in.make_stream());
    words.resize(static_cast<std::size_t>(size));
  }
  NcclOptions options(int rank) {
    NcclOptions o;
    o.rank = rank;
    o.world_size = size;
    o.id = id;
    o.stream = streams[static_cast<std::size_t>(rank)];
    o.barrier = reinterpret_cast<std::byte*>(&words[static_cast<std::size_t>(rank)]);
    o.deadline_seconds = deadline;
    o.stop = stop;
    o.groups = groups;
    return o;
  }
  /// Runs `work` on every rank but the missing one; what each threw.
  std::vector<std::string> run(const RankWork& work) {
    std::vector<std::string> failures(static_cast<std::size_t>(size));
    kinds.assign(failures.size(), FailureKind::kFailed);
    std::vector<std::thread> threads;
    const auto start = std::chrono::steady_clock::now();
    for (int r = 0; r < size; ++r) {
      if (r == missing) continue;
      threads.emplace_back([&, r] {
        try {
          const auto c = make_nccl_communicator(stand_in.api(), options(r));
          work(*c);
        } catch (const ExecutorError& e) {
          failures[static_cast<std::size_t>(r)] = describe(e);
          kinds[static_cast<std::size_t>(r)] = e.kind;
        }
      });
    }
    for (std::thread& t : threads) t.join();
    // Twice: a rank that has failed may leave others in the end of their communicator.
    EXPECT_LT(Seconds(std::chrono::steady_clock::now() - start).count(), 2 * deadline + 10);
    EXPECT_EQ(stand_in.alive(), 0);
    EXPECT_EQ(stand_in.violations(), std::vector<std::string>{});
    return failures;
  }

  test::NcclStandIn stand_in;
  int size;
  NcclId id{};
  std::vector<cudaStream_t> streams;
  std::vector<std::int32_t> words;
  double deadline = 20;
  std::shared_ptr<StopSignal> stop = std::make_shared<StopSignal>();
  std::vector<std::vector<int>> groups;
  int missing = -1;
  std::vector<FailureKind> kinds;
};

CallSite nccl_site(std::string_view what = "i7 test") { return {3, what, Purpose::kGrads}; }

template <class T>
std::byte* raw(std::vector<T>& v) {
  return reinterpret_cast<std::byte*>(v.data());
}

std::size_t failures_with(const std::vector<std::string>& failures, const std::string& part) {
  return static_cast<std::size_t>(
      std::count_if(failures.begin(), failures.end(),
                    [&](const std::string& f) { return f.find(part) != std::string::npos; }));
}

// ---- equal to the local communicator ------------------------------------------------------------

std::vector<std::vector<int>> all_groups(int world) {
  std::vector<std::vector<int>> groups;
  for (int mask = 1; mask < 1 << world; ++mask) {
    std::vector<int> group;
    for (int r = 0; r < world; ++r) {
      if ((mask >> r & 1) != 0) group.push_back(r);
    }
    groups.push_back(group);
  }
  return groups;
}

/// The same random calls on every rank; returns all bytes that this rank ends with.
std::vector<std::byte> play(Communicator& c, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::vector<std::vector<int>> groups = all_groups(c.world_size());
  std::vector<std::byte> out;
  for (int call = 0; call < 25; ++call) {
    const int kind = draw(6);
    const std::vector<int>& members = groups[static_cast<std::size_t>(draw(groups.size()))];
    const auto n = static_cast<int>(members.size());
    const int elements = draw(40);
    const int root = draw(n);
    const DType dtype = std::array{DType::kFp32, DType::kFp64, DType::kBf16}[draw(3)];
    const std::int64_t size = dtype_size(dtype);
    // Contributions differ from rank to rank and are sums of powers of two: exact in every type.
    std::vector<std::byte> data(static_cast<std::size_t>(n * elements * size + 8));
    for (int i = 0; i < n * elements; ++i) {
      const double value = static_cast<double>((c.rank() * 7 + i * 3 + call) % 16);
      const auto narrow = static_cast<float>(value);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &narrow, 4);
      std::byte* const at = data.data() + i * size;
      if (dtype == DType::kFp64) std::memcpy(at, &value, 8);
      if (dtype == DType::kFp32) std::memcpy(at, &narrow, 4);
      if (dtype == DType::kBf16) std::memcpy(at, reinterpret_cast<std::byte*>(&bits) + 2, 2);
    }
    const bool member = std::find(members.begin(), members.end(), c.rank()) != members.end();
    const auto self = std::find(members.begin(), members.end(), c.rank()) - members.begin();
    if (kind == 5) {  // every pair, two tags, issued in another order on the receiving side
      std::vector<std::vector<int>> sent, got;
      std::vector<Message> messages;
      for (int peer = 0; peer < c.world_size(); ++peer) {
        if (peer == c.rank()) continue;
        for (const int tag : {4, 2, 4}) {
          sent.push_back({call, c.rank(), peer, tag, static_cast<int>(sent.size())});
          got.emplace_back(5);
        }
      }
      std::size_t i = 0, j = 0;
      for (int peer = 0; peer < c.world_size(); ++peer) {
        if (peer == c.rank()) continue;
        for (const int tag : {4, 2, 4}) messages.push_back({true, peer, tag, raw(sent[i++]), 20});
        for (const int tag : {2, 4, 4}) messages.push_back({false, peer, tag, raw(got[j++]), 20});
      }
      c.exchange(nccl_site(), messages);
      for (std::vector<int>& g : got) out.insert(out.end(), raw(g), raw(g) + 20);
      continue;
    }
    if (kind == 4) c.barrier(nccl_site());
    if (!member) continue;
    if (kind == 0) c.all_gather(nccl_site(), members, data.data(), elements * size);
    if (kind == 1) {
      c.reduce_scatter(nccl_site(), members, data.data(), elements, dtype);
      out.insert(out.end(), data.data() + self * elements * size,
                 data.data() + (self + 1) * elements * size);
      continue;  // the other shards are unspecified
    }
    if (kind == 2) c.all_reduce(nccl_site(), members, data.data(), elements, dtype);
    if (kind == 3) c.broadcast(nccl_site(), members, data.data(), elements * size, root);
    out.insert(out.end(), data.begin(), data.end());
  }
  return out;
}

std::vector<std::int64_t> wire_bytes(const Communicator& c) {
  std::vector<std::int64_t> out;
  for (const WireCount& w : c.wire()) {
    if (w.bytes == 0) continue;
    out.push_back(static_cast<std::int64_t>(w.collective) * 100 +
                  static_cast<std::int64_t>(w.purpose));
    out.push_back(w.bytes);
  }
  return out;
}

TEST(NcclCommunicator, GivesAndCountsWhatTheLocalCommunicatorDoes) {
  for (int world = 2; world <= 4; ++world) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      const auto ranks = static_cast<std::size_t>(world);
      std::vector<std::vector<std::byte>> local(ranks), nccl(ranks);
      std::vector<std::vector<std::int64_t>> local_wire(ranks), nccl_wire(ranks);
      const auto communicators = make_local_communicators(world, {.deadline_seconds = 20});
      std::vector<std::thread> threads;
      for (std::size_t r = 0; r < ranks; ++r) {
        threads.emplace_back([&, r] {
          local[r] = play(*communicators[r], seed);
          local_wire[r] = wire_bytes(*communicators[r]);
        });
      }
      for (std::thread& t : threads) t.join();
      NcclWorld over(world);
      over.groups = all_groups(world);
      over.stand_in.set_polls(static_cast<int>(seed % 4));
      const auto failures = over.run([&](Communicator& c) {
        const auto r = static_cast<std::size_t>(c.rank());
        nccl[r] = play(c, seed);
        nccl_wire[r] = wire_bytes(c);
      });
      EXPECT_EQ(failures, std::vector<std::string>(ranks));
      EXPECT_EQ(nccl, local) << "world " << world << " seed " << seed;
      EXPECT_EQ(nccl_wire, local_wire);
      EXPECT_EQ(over.stand_in.aborted(), 0);
    }
  }
}

TEST(NcclCommunicator, DisjointGroupsShareASplitAndEqualOnesACommunicator) {
  NcclWorld over(4);
  over.groups = {{0, 1}, {2, 3}, {0, 1}, {0, 2}, {1, 3}, {0, 1, 2, 3}, {2}};
  EXPECT_EQ(over.run([](Communicator&) {}), std::vector<std::string>(4));
  // {0 1}{2 3}, then {0 2}{1 3}; the world and single ranks need none. Four ranks join each.
  EXPECT_EQ(over.stand_in.splits(), 2 * 4);
}

TEST(NcclCommunicator, AWorldOfOneNeedsNoNccl) {
  NcclWorld over(1);
  const auto failures = over.run([](Communicator& c) {
    const std::vector<int> self = {0};
    std::vector<float> data = {2.0f};
    c.all_reduce(nccl_site(), self, raw(data), 1, DType::kFp32);
    c.barrier(nccl_site());
    EXPECT_EQ(data[0], 2.0f);
    EXPECT_EQ(wire_bytes(c), std::vector<std::int64_t>{});
  });
  EXPECT_EQ(failures[0], "");
}

TEST(NcclCommunicator, AGroupThatWasNotNamedIsOurBug) {
  NcclWorld over(3);
  over.run([](Communicator& c) {
    if (c.rank() == 2) return;
    const std::vector<int> pair = {0, 1};
    std::vector<float> data(1);
    EXPECT_THROW(c.all_reduce(nccl_site(), pair, raw(data), 1, DType::kFp32), InternalError);
  });
}

/// Whole runs: every schedule's messages must pair up although NCCL knows no tags.
TEST(NcclRun, EqualsRunLocalForRandomPlans) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const TinyPlan tiny = random_plan(seed);
    const Program program = lower_tiny(tiny);
    const auto world = static_cast<std::size_t>(program.world_size());
    const auto data = synthetic_data(3, program.job.seq, 13);
    const RunOptions options{.steps = 2, .deadline_seconds = 20};
    const auto local = run_local(program, test::hash_devices(), *data, nullptr, options);
    ASSERT_TRUE(local.ok()) << local.error().message;
    NcclWorld over(program.world_size());
    over.groups = collective_groups(program);
    std::vector<RunResult> results(world);
    std::vector<std::string> errors(world);
    const auto failures = over.run([&](Communicator& c) {
      const auto r = static_cast<std::size_t>(c.rank());
      const auto result = run_rank(program, test::hash_devices(), c, *data, nullptr, options);
      if (result.ok()) {
        results[r] = *result;
      } else {
        errors[r] = result.error().message;
      }
    });
    ASSERT_EQ(errors, std::vector<std::string>(world)) << to_string(tiny);
    ASSERT_EQ(failures, std::vector<std::string>(world)) << to_string(tiny);
    EXPECT_EQ(results[0].state_hash, local->state_hash) << to_string(tiny);
    EXPECT_EQ(results[0].losses, local->losses) << to_string(tiny);
    for (const WireReport& w : results[0].wire) {
      EXPECT_EQ(w.sent_bytes, w.predicted_bytes) << to_string(tiny);
    }
  }
}

TEST(NcclApi, IsWholeOrSaysWhatIsMissing) {
  const auto api = load_nccl();
  if (api.ok()) {
    EXPECT_EQ(*load_nccl(), *api);
    int version = 0;
    EXPECT_EQ((*api)->get_version(&version), ncclSuccess);
    EXPECT_GE(version, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, 0));
  } else {
    EXPECT_EQ(api.error().code, "no-nccl");
    EXPECT_NE(api.error().message.find(api.error().where), std::string::npos);
    EXPECT_NE(api.error().hint, "");
  }
}

// ---- failures -----------------------------------------------------------------------------------

TEST(NcclCommunicator, AMissingRankStopsTheStartAtTheDeadline) {
  NcclWorld over(3);
  over.deadline = 0.2;
  over.missing = 1;
  const auto failures = over.run([](Communicator&) { ADD_FAILURE() << "started"; });
  EXPECT_EQ(failures_with(failures,
                          "gave up waiting at step 0, start of NCCL: start over ranks "
                          "0, 1, 2 did not end within 0.2"),
            2u);  // the first one, and the other obeys it with its reason or has its own
  EXPECT_EQ(over.stand_in.aborted(), 2);
}

TEST(NcclCommunicator, ARankThatNeverComesIsGivenUpAtTheDeadline) {
  NcclWorld over(3);
  over.deadline = 0.2;
  over.groups = {{0, 2}};
  const std::vector<int> members = {0, 2};
  const auto failures = over.run([&](Communicator& c) {
    std::vector<float> data(4);
    if (c.rank() == 0) c.all_reduce(nccl_site(), members, raw(data), 4, DType::kFp32);
  });
  EXPECT_NE(failures[0].find("rank 0 gave up waiting at step 3, instruction i7 test: all_reduce of "
                             "16 bytes over ranks 0, 2 did not end within 0.2"),
            std::string::npos)
      << failures[0];
  EXPECT_EQ(over.kinds[0], FailureKind::kStalled);
}

TEST(NcclCommunicator, AMessageWithoutReceiverNamesItsPartner) {
  NcclWorld over(2);
  over.deadline = 0.2;
  const auto failures = over.run([&](Communicator& c) {
    std::vector<int> data(1);
    if (c.rank() == 1) return;
    const std::vector<Message> m = {{true, 1, 0, raw(data), 4}};
    try {
      c.exchange(nccl_site(), m);
    } catch (const ExecutorError& e) {
      EXPECT_EQ(e.awaited, 1);
      EXPECT_EQ(c.awaiting(), 1);
      throw;
    }
  });
  EXPECT_NE(failures[0].find("exchange of 4 bytes with rank 1 did not end"), std::string::npos)
      << failures[0];
}

TEST(NcclCommunicator, DifferentSizesAreAMismatchOnAllRanks) {
  NcclWorld over(3);
  const std::vector<int> members = {0, 1, 2};
  const auto failures = over.run([&](Communicator& c) {
    std::vector<float> data(8);
    c.all_gather(nccl_site(), members, raw(data), c.rank() == 1 ? 8 : 4);
  });
  EXPECT_EQ(failures_with(failures, "over ranks 0, 1, 2: invalid argument"), 3u) << failures[0];
  EXPECT_NE(std::count(over.kinds.begin(), over.kinds.end(), FailureKind::kMismatch), 0);
}

TEST(NcclCommunicator, DifferentTypesAreAMismatch) {
  NcclWorld over(2);
  const std::vector<int> members = {0, 1};
  const auto failures = over.run([&](Communicator& c) {
    std::vector<double> data(2);
    c.all_reduce(nccl_site(), members, raw(data), 2, c.rank() == 0 ? DType::kFp32 : DType::kFp64);
  });
  EXPECT_EQ(failures_with(failures, "invalid argument"), 2u);
}

TEST(NcclCommunicator, AnAsynchronousErrorStopsAllRanks) {
  NcclWorld over(3);
  const std::vector<int> members = {0, 1, 2};
  const auto failures = over.run([&](Communicator& c) {
    std::vector<float> data(4);
    c.all_reduce(nccl_site("i6 before"), members, raw(data), 4, DType::kFp32);
    if (c.rank() == 1) over.stand_in.fail_later(1, ncclRemoteError);
    c.all_reduce(nccl_site(), members, raw(data), 4, DType::kFp32);
  });
  EXPECT_EQ(failures[1],
            "rank 1 failed at step 3, instruction i7 test: NCCL, all_reduce of 16 bytes over ranks "
            "0, 1, 2: remote process exited or there was a network error");
  for (const std::size_t other : {0, 2}) {
    EXPECT_EQ(over.kinds[other], FailureKind::kAborted);
    EXPECT_NE(failures[other].find(failures[1]), std::string::npos) << failures[other];
  }
  EXPECT_EQ(over.stand_in.aborted(), 3);
}

TEST(NcclCommunicator, ARefusedMessageClosesItsGroup) {
  NcclWorld over(2);
  const auto failures = over.run([&](Communicator& c) {
    std::vector<int> data(2);
    if (c.rank() == 1) over.stand_in.refuse_next(1, ncclSystemError);
    const std::vector<Message> m = {{true, 1 - c.rank(), 0, raw(data), 4},
                                    {false, 1 - c.rank(), 0, raw(data) + 4, 4}};
    try {
      c.exchange(nccl_site(), m);
    } catch (const ExecutorError&) {
      // No group is left open on this thread.
      EXPECT_EQ(over.stand_in.api().group_end(), ncclInvalidUsage);
      throw;
    }
  });
  EXPECT_EQ(failures[1],
            "rank 1 failed at step 3, instruction i7 test: NCCL, exchange of 8 bytes with rank 0: "
            "another error");
  EXPECT_EQ(over.kinds[0], FailureKind::kAborted);
}

TEST(NcclCommunicator, ABrokenDeviceIsReported) {
  NcclWorld over(2);
  const auto failures = over.run([&](Communicator& c) {
    c.barrier(nccl_site("barrier"));
    if (c.rank() == 0) over.stand_in.break_stream(over.streams[0], cudaErrorLaunchFailure);
    c.barrier(nccl_site("barrier"));
    // Rank 1 may pass the second barrier before rank 0 finds out.
    if (c.rank() == 1) c.barrier(nccl_site("barrier"));
  });
  EXPECT_EQ(failures[0],
            "rank 0 failed at step 3, barrier: CUDA, barrier over ranks 0, 1: the device is gone");
  EXPECT_EQ(over.kinds[1], FailureKind::kAborted);
}

TEST(NcclCommunicator, AbortFromAnotherThreadWakesWhoeverWaits) {
  NcclWorld over(3);
  std::vector<std::string> told;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    over.stop->raise("the user has had enough");
  });
  const auto failures = over.run([](Communicator& c) {
    if (c.rank() != 1) c.barrier(nccl_site("barrier"));
  });
  other.join();
  for (const std::size_t r : {0, 2}) {
    EXPECT_EQ(failures[r],
              "rank " + std::to_string(r) + " failed at step 3, barrier: the user has had enough");
    EXPECT_EQ(over.kinds[r], FailureKind::kAborted);
  }
  EXPECT_EQ(over.stand_in.aborted(), 3);
}

TEST(NcclCommunicator, AbortOfOneRankWakesTheOthersAndOtherProcesses) {
  NcclWorld over(2);
  std::string told;
  std::vector<std::string> failures(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      NcclOptions options = over.options(r);
      if (r == 0) options.tell_others = [&](const std::string& reason) { told = reason; };
      const auto c = make_nccl_communicator(over.stand_in.api(), options);
      try {
        c->barrier(nccl_site("barrier"));  // after it, nobody is in the start any more
        if (r == 0) c->abort("rank 0 has had enough");
        c->barrier(nccl_site("barrier"));
      } catch (const ExecutorError& e) {
        failures[static_cast<std::size_t>(r)] = describe(e);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(told, "rank 0 has had enough");
  EXPECT_EQ(failures[1], "rank 1 failed at step 3, barrier: rank 0 has had enough");
  EXPECT_EQ(over.stand_in.alive(), 0);
}

TEST(NcclCommunicator, AbortDuringTheStartWakesTheOthers) {
  NcclWorld over(2);
  over.missing = 1;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    over.stop->raise("rank 1 has no device");
  });
  const auto failures = over.run([](Communicator&) { ADD_FAILURE() << "started"; });
  other.join();
  EXPECT_EQ(failures[0], "rank 0 failed at step 0, start of NCCL: rank 1 has no device");
}

TEST(NcclCommunicator, APartnerThatDoesNotEndIsAbortedAtTheDeadline) {
  NcclWorld over(2);
  over.deadline = 0.2;
  const auto left = make_nccl_communicator;
  std::unique_ptr<Communicator> stays;
  std::thread other([&] { stays = left(over.stand_in.api(), over.options(1)); });
  { const auto ends = left(over.stand_in.api(), over.options(0)); }
  other.join();
  EXPECT_EQ(over.stand_in.aborted(), 1);  // rank 0, after its deadline
  stays.reset();
  EXPECT_EQ(over.stand_in.alive(), 0);
}

TEST(NcclRun, AFaultAnywhereEndsAllRanks) {
  const Program program = lower_tiny({.pp = 2, .dp = 2, .micro_batches = 3, .zero = 1});
  const auto data = synthetic_data(3, program.job.seq, 13);
  for (std::int32_t at = 0; at < 40; at += 5) {
    const int victim = at / 5 % 4;
    NcclWorld over(4);
    over.groups = collective_groups(program);
    const RunOptions options{
        .steps = 2, .deadline_seconds = 20, .fault = {FaultInjection::Kind::kThrow, victim, 1, at}};
    std::vector<std::string> codes(4);
    over.run([&](Communicator& c) {
      const auto result = run_rank(program, test::hash_devices(), c, *data, nullptr, options);
      codes[static_cast<std::size_t>(c.rank())] = result.ok() ? "" : result.error().code;
    });
    for (std::size_t r = 0; r < 4; ++r) {
      EXPECT_EQ(codes[r], static_cast<int>(r) == victim ? "rank-failed" : "run-aborted")
          << "rank " << r << " at " << at;
    }
  }
}

}  // namespace
}  // namespace bayplan::exec
