// Claims about the NCCL communicator on real GPUs, one rank a GPU, ranks as threads. What it does
// when partners disagree is tested with a stand-in (tests/unit/executor), since NCCL does not
// define it. A line "world …" per world size goes to stdout for tools/gpu_check.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <numeric>
#include <thread>

#include "executor/comm/nccl_api.h"
#include "executor/comm/nccl_communicator.h"
#include "executor/error.h"
#include "tests/gpu/device_memory.h"

namespace bayplan::exec {
namespace {

using Clock = std::chrono::steady_clock;
using test::DeviceMemory;
using test::DeviceStream;

int gpu_count() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

const NcclApi& nccl() {
  static const auto loaded = load_nccl();
  if (!loaded.ok()) throw std::runtime_error(loaded.error().message);
  return **loaded;
}

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

using RankWork = std::function<void(Communicator&, int device)>;

/// Runs `work` on ranks [0, world) but the missing one; what each threw.
std::vector<std::string> on_gpus(int world, const RankWork& work, double deadline = 60,
                                 int missing = -1,
                                 const std::shared_ptr<StopSignal>& stop = nullptr) {
  std::vector<std::string> failures(static_cast<std::size_t>(world));
  const NcclId id = make_nccl_id(nccl());
  const auto signal = stop != nullptr ? stop : std::make_shared<StopSignal>();
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    if (r == missing) continue;
    threads.emplace_back([&, r] {
      try {
        const DeviceStream stream(r);
        const DeviceMemory word(r, sizeof(std::int32_t));
        NcclOptions options;
        options.rank = options.device = r;
        options.world_size = world;
        options.id = id;
        options.stream = stream.get();
        options.barrier = word.data();
        options.deadline_seconds = deadline;
        options.stop = signal;
        if (world > 2) options.groups = {{0, world - 1}};
        const auto c = make_nccl_communicator(nccl(), options);
        work(*c, r);
      } catch (const ExecutorError& e) {
        failures[static_cast<std::size_t>(r)] = describe(e);
      } catch (const std::exception& e) {
        failures[static_cast<std::size_t>(r)] = e.what();
        signal->raise(e.what());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return failures;
}

CallSite gpu_site(std::string_view what) { return {0, what, Purpose::kGrads}; }

std::vector<int> everyone(int world) {
  std::vector<int> all(static_cast<std::size_t>(world));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(NcclGpu, OneRankGoesThroughTheNonBlockingProtocol) {
  // A world of one makes no NCCL communicator of its own, so this calls the table.
  const NcclApi& api = nccl();
  const DeviceStream stream(0);
  DeviceMemory memory(0, 4 * sizeof(float));
  memory.write(std::vector<float>{1, 2, 3, 4});
  const auto settled = [&](ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    for (const auto start = Clock::now(); state == ncclInProgress && since(start) < 60;) {
      if (api.comm_get_async_error(comm, &state) != ncclSuccess) return ncclInternalError;
    }
    return state;
  };
  const auto accepted = [](ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
  };
  ncclUniqueId id;
  ASSERT_EQ(api.get_unique_id(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ASSERT_TRUE(accepted(api.comm_init_rank_config(&comm, 1, id, 0, &config)));
  ASSERT_EQ(settled(comm), ncclSuccess);
  ncclComm_t child = nullptr;
  ASSERT_TRUE(accepted(api.comm_split(comm, 0, 0, &child, &config)));
  ASSERT_EQ(settled(comm), ncclSuccess);
  ASSERT_NE(child, nullptr);
  ASSERT_EQ(settled(child), ncclSuccess);
  for (ncclComm_t c : {comm, child}) {
    ASSERT_TRUE(accepted(
        api.all_reduce(memory.data(), memory.data(), 4, ncclFloat32, ncclSum, c, stream.get())));
    ASSERT_EQ(settled(c), ncclSuccess);
    test::check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  }
  EXPECT_EQ(memory.read<float>(), (std::vector<float>{1, 2, 3, 4}));
  ASSERT_TRUE(accepted(api.comm_finalize(child)));
  EXPECT_EQ(settled(child), ncclSuccess);
  EXPECT_EQ(api.comm_destroy(child), ncclSuccess);
  EXPECT_EQ(api.comm_abort(comm), ncclSuccess);
}

TEST(NcclGpu, EveryCallGivesTheRightBytesAtEveryWorldSize) {
  if (gpu_count() < 2) GTEST_SKIP() << "needs two GPUs";
  for (int world = 2; world <= gpu_count(); ++world) {
    const std::vector<int> all = everyone(world);
    const auto n = static_cast<std::size_t>(world);
    const auto failures = on_gpus(world, [&](Communicator& c, int device) {
      const auto r = static_cast<std::size_t>(c.rank());
      // Small whole numbers: every order of a sum gives the same.
      DeviceMemory memory(device, n * 2 * sizeof(float));
      std::vector<float> mine(2 * n);
      for (std::size_t i = 0; i < 2 * n; ++i) mine[i] = static_cast<float>(10 * r + i);
      const auto sum_at = [&](std::size_t i) {  // over ranks k of 10 k + i
        return static_cast<float>(10 * n * (n - 1) / 2 + n * i);
      };

      memory.write(mine);
      c.all_reduce(gpu_site("sum"), all, memory.data(), world * 2, DType::kFp32);
      std::vector<float> got = memory.read<float>();
      for (std::size_t i = 0; i < 2 * n; ++i) EXPECT_EQ(got[i], sum_at(i));

      memory.write(mine);
      c.reduce_scatter(gpu_site("scatter"), all, memory.data(), 2, DType::kFp32);
      got = memory.read<float>();
      for (std::size_t i = 2 * r; i < 2 * r + 2; ++i) EXPECT_EQ(got[i], sum_at(i));

      memory.write(mine);
      c.all_gather(gpu_site("gather"), all, memory.data(), 8);
      got = memory.read<float>();
      for (std::size_t i = 0; i < 2 * n; ++i) {
        EXPECT_EQ(got[i], static_cast<float>(10 * (i / 2) + i));
      }

      memory.write(mine);
      c.broadcast(gpu_site("broadcast"), all, memory.data(), 8, world - 1);
      got = memory.read<float>();
      EXPECT_EQ(got[1], static_cast<float>(10 * (n - 1) + 1));

      // A ring, and a second tag the other way that the two sides issue in another order.
      memory.write(mine);
      const int next = (c.rank() + 1) % world, previous = (c.rank() + world - 1) % world;
      DeviceMemory from_previous(device, 4), from_next(device, 4);
      const std::vector<Message> messages = {{true, next, 9, memory.data(), 4},
                                             {false, next, 2, from_next.data(), 4},
                                             {true, previous, 2, memory.data() + 4, 4},
                                             {false, previous, 9, from_previous.data(), 4}};
      c.exchange(gpu_site("exchange"), messages);
      EXPECT_EQ(from_previous.read<float>()[0], static_cast<float>(10 * previous));
      EXPECT_EQ(from_next.read<float>()[0], static_cast<float>(10 * next + 1));

      if (world > 2 && (c.rank() == 0 || c.rank() == world - 1)) {
        const std::vector<int> ends = {0, world - 1};
        memory.write(mine);
        c.all_reduce(gpu_site("ends"), ends, memory.data(), 1, DType::kFp32);
        EXPECT_EQ(memory.read<float>()[0], static_cast<float>(10 * (world - 1)));
      }
      c.barrier(gpu_site("barrier"));
    });
    EXPECT_EQ(failures, std::vector<std::string>(n)) << "world " << world;
  }
}

TEST(NcclGpu, ARankThatNeverComesIsGivenUp) {
  if (gpu_count() < 2) GTEST_SKIP() << "needs two GPUs";
  const auto start = Clock::now();
  const std::vector<int> all = {0, 1};
  const auto failures = on_gpus(
      2,
      [&](Communicator& c, int device) {
        DeviceMemory memory(device, 1 << 20);
        c.barrier(gpu_site("barrier"));
        if (c.rank() == 0) c.all_reduce(gpu_site("sum"), all, memory.data(), 1000, DType::kFp32);
      },
      5);
  EXPECT_NE(failures[0].find("did not end within 5"), std::string::npos) << failures[0];
  EXPECT_LT(since(start), 60);
}

TEST(NcclGpu, AMissingRankStopsTheStart) {
  if (gpu_count() < 2) GTEST_SKIP() << "needs two GPUs";
  const auto failures = on_gpus(
      2, [](Communicator&, int) { ADD_FAILURE() << "started"; }, 5, 1);
  EXPECT_NE(failures[0].find("start over ranks 0, 1 did not end within 5"), std::string::npos)
      << failures[0];
}

TEST(NcclGpu, AbortFromAnotherThreadEndsAWaitingKernel) {
  if (gpu_count() < 2) GTEST_SKIP() << "needs two GPUs";
  const auto stop = std::make_shared<StopSignal>();
  std::thread other;
  const std::vector<int> all = {0, 1};
  const auto failures = on_gpus(
      2,
      [&](Communicator& c, int device) {
        DeviceMemory memory(device, 1 << 20);
        c.barrier(gpu_site("barrier"));
        if (c.rank() == 1) {
          other = std::thread([&] {
            std::this_thread::sleep_for(std::chrono::seconds(2));
            stop->raise("enough");
          });
          while (!stop->raised()) std::this_thread::yield();
        } else {
          c.all_reduce(gpu_site("sum"), all, memory.data(), 1000, DType::kFp32);
        }
      },
      60, -1, stop);
  if (other.joinable()) other.join();
  EXPECT_NE(failures[0].find("enough"), std::string::npos) << failures[0];
}

TEST(NcclGpu, TimeOfAnAllReduceAtEveryWorldSize) {
  if (gpu_count() < 2) GTEST_SKIP() << "needs two GPUs";
  constexpr std::int64_t kElements = std::int64_t{64} << 20;
  constexpr int kRounds = 11;
  for (int world = 2; world <= gpu_count(); ++world) {
    const std::vector<int> all = everyone(world);
    std::vector<double> seconds;
    const auto failures = on_gpus(world, [&](Communicator& c, int device) {
      DeviceMemory memory(device, kElements * sizeof(float));
      for (int round = 0; round < kRounds; ++round) {
        c.barrier(gpu_site("barrier"));
        const auto start = Clock::now();
        c.all_reduce(gpu_site("sum"), all, memory.data(), kElements, DType::kFp32);
        if (c.rank() == 0 && round > 0) seconds.push_back(since(start));
      }
    });
    ASSERT_EQ(failures, std::vector<std::string>(static_cast<std::size_t>(world)));
    std::sort(seconds.begin(), seconds.end());
    std::printf("world %d: all_reduce of %lld bytes, median %.6f s\n", world,
                static_cast<long long>(kElements * 4), seconds[seconds.size() / 2]);
  }
}

}  // namespace
}  // namespace bayplan::exec
