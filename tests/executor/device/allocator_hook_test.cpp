#include "executor/memory/allocator_hook_torch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "executor/error.h"
#include "executor/ops/thread_team.h"

namespace bayplan::exec {
namespace {

struct AllocatorHook : ::testing::Test {
  AllocatorHook() { install_allocator_hook(); }
  alignas(64) std::byte memory[4096];
  bool inside(const at::Tensor& t) const {
    const auto* p = static_cast<const std::byte*>(t.data_ptr());
    return p >= memory && p < memory + sizeof memory;
  }
};

TEST_F(AllocatorHook, TemporariesLieInTheRegion) {
  WorkspaceRegion region(memory, sizeof memory, {});
  {
    const RegionScope scope(&region);
    EXPECT_TRUE(inside(at::empty({100}, at::kFloat)));
  }
  EXPECT_FALSE(inside(at::empty({100}, at::kFloat)));
  EXPECT_EQ(region.used(), 512);  // 400 bytes in steps of 64, and a header of 64
}

TEST_F(AllocatorHook, FreedBytesAreUsedAgain) {
  WorkspaceRegion region(memory, sizeof memory, {});
  const RegionScope scope(&region);
  for (int i = 0; i < 100; ++i) at::empty({800}, at::kFloat);  // 3200 of 4096 bytes
  const at::Tensor kept = at::empty({16}, at::kFloat);
  for (int i = 0; i < 100; ++i) at::empty({700}, at::kFloat);
  EXPECT_LE(region.used(), 3264);
}

TEST_F(AllocatorHook, OverflowNamesRankStepInstructionAndBytes) {
  const RegionOwner owner{3, 7, nullptr, [](const void*) { return std::string("compute F"); }};
  WorkspaceRegion region(memory, 1024, owner);
  const RegionScope scope(&region);
  try {
    at::empty({1000}, at::kFloat);
    FAIL() << "allocated 4000 bytes in 1024";
  } catch (const ExecutorError& e) {
    EXPECT_EQ(e.rank, 3);
    EXPECT_EQ(e.step, 7);
    EXPECT_EQ(e.instruction, "compute F");
    EXPECT_NE(std::string(e.what()).find("4000"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("1024"), std::string::npos);
  }
}

TEST_F(AllocatorHook, OtherThreadsMayNotAllocateDuringAStep) {
  WorkspaceRegion region(memory, sizeof memory, {});
  const RegionScope scope(&region);
  std::thread([] { EXPECT_THROW(at::empty({10}), ExecutorError); }).join();
}

TEST_F(AllocatorHook, RawAllocationsLieInTheRegionToo) {
  c10::Allocator* allocator = c10::GetAllocator(c10::kCPU);
  void* outside = allocator->raw_allocate(100);
  WorkspaceRegion region(memory, sizeof memory, {});
  {
    const RegionScope scope(&region);
    void* block = allocator->raw_allocate(100);
    EXPECT_TRUE(region.contains(block));
    allocator->raw_deallocate(block);
    EXPECT_EQ(region.used(), 192);  // 100 bytes in steps of 64, and a header of 64
    allocator->raw_deallocate(outside);
  }
  outside = allocator->raw_allocate(100);
  EXPECT_FALSE(region.contains(outside));
  allocator->raw_deallocate(outside);
}

TEST_F(AllocatorHook, TeamThreadsShareTheRegion) {
  WorkspaceRegion region(memory, sizeof memory, {});
  const RegionScope scope(&region);
  const at::Tensor own = at::empty({16}, at::kFloat);  // 128 bytes, the shares come behind
  parallel_tasks(2, 64, [&](std::int64_t) {
    const at::Tensor t = at::empty({400}, at::kFloat);
    EXPECT_TRUE(inside(t));
    EXPECT_NE(t.data_ptr(), own.data_ptr());
  });
  // (4096 - 128) / 2 = 1984 bytes a thread: 1600 + 64 fit, 2000 do not.
  EXPECT_THROW(parallel_tasks(2, 2, [&](std::int64_t) { at::empty({500}, at::kFloat); }),
               ExecutorError);
}

}  // namespace
}  // namespace bayplan::exec
