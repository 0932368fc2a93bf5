#include "executor/memory/allocator_hook_torch.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "executor/error.h"
#include "planner/core/operators/tiling.h"

namespace bayplan::exec {
namespace {

thread_local WorkspaceRegion* region_of_thread = nullptr;
std::atomic<int> open_scopes{0};

/// Sits in the kTemporaryAlignment bytes before every block.
struct BlockHeader {
  WorkspaceRegion* region;
  std::byte* end;
};

BlockHeader* header_of(void* block) {
  return reinterpret_cast<BlockHeader*>(static_cast<std::byte*>(block) - kTemporaryAlignment);
}

void release_block(void* block) {
  if (block != nullptr) header_of(block)->region->release(block);
}

c10::Allocator* unhooked_allocator = nullptr;

void release_raw(void* block) {
  if (block == nullptr) return;
  if (region_of_thread != nullptr && region_of_thread->contains(block)) {
    region_of_thread->release(block);
  } else {
    unhooked_allocator->raw_deallocate(block);
  }
}

class HookedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    WorkspaceRegion* region = region_of_thread;
    if (region != nullptr) {
      void* block = bytes == 0 ? nullptr : region->allocate(bytes);
      return {block, block, &release_block, c10::Device(c10::DeviceType::CPU)};
    }
    if (open_scopes.load(std::memory_order_relaxed) > 0) {
      throw ExecutorError(-1, -1, "",
                          "allocation of " + std::to_string(bytes) +
                              " bytes during a step, by a thread that no instruction runs on");
    }
    return unhooked_allocator->allocate(bytes);
  }

  /// For users of raw_allocate (oneDNN's scratch memory), who free on the allocating thread.
  c10::DeleterFnPtr raw_deleter() const override { return &release_raw; }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }
};

}  // namespace

WorkspaceRegion::WorkspaceRegion(std::byte* begin, std::int64_t bytes, const RegionOwner& owner)
    : begin_(begin), top_(begin), end_(begin + bytes), owner_(owner) {}

void* WorkspaceRegion::allocate(std::size_t bytes) {
  const std::int64_t wanted = temporary(static_cast<std::int64_t>(bytes));
  if (wanted > end_ - top_) {
    throw ExecutorError(owner_.rank, owner_.step,
                        owner_.describe == nullptr ? "" : owner_.describe(owner_.context),
                        "a temporary of " + std::to_string(bytes) +
                            " bytes does not fit: " + std::to_string(top_ - begin_) + " of the " +
                            std::to_string(end_ - begin_) + " declared workspace bytes are in use");
  }
  std::byte* block = top_ + kTemporaryAlignment;
  top_ += wanted;
  *header_of(block) = {this, top_};
  ++live_;
  used_ = std::max<std::int64_t>(used_, top_ - begin_);
  return block;
}

void WorkspaceRegion::release(void* block) {
  if (--live_ == 0) {
    top_ = begin_;
  } else if (header_of(block)->end == top_) {
    top_ = static_cast<std::byte*>(block) - kTemporaryAlignment;
  }
}

WorkspaceRegion WorkspaceRegion::share(int index, int count) const {
  const std::int64_t bytes = (end_ - top_) / count / kTemporaryAlignment * kTemporaryAlignment;
  return {top_ + index * bytes, bytes, owner_};
}

void WorkspaceRegion::add_shares_used(std::int64_t bytes) {
  used_ = std::max<std::int64_t>(used_, top_ - begin_ + bytes);
}

void install_allocator_hook() {
  // The wheel's allocator has priority 0; ours must stay installed for the life of the process.
  constexpr std::uint8_t kPriority = 100;
  static std::once_flag once;
  std::call_once(once, [] {
    unhooked_allocator = c10::GetCPUAllocator();
    c10::SetCPUAllocator(new HookedAllocator, kPriority);  // outlives every static object
  });
}

WorkspaceRegion* current_region() { return region_of_thread; }

RegionScope::RegionScope(WorkspaceRegion* region) : previous_(region_of_thread) {
  region_of_thread = region;
  open_scopes.fetch_add(1, std::memory_order_relaxed);
}

RegionScope::~RegionScope() {
  region_of_thread = previous_;
  open_scopes.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace bayplan::exec
