// The allocator hook: while an instruction runs, every temporary that ATen allocates on its
// threads lies in the workspace bytes that the instruction declared, behind its scratch tensors.
// More than that, or an allocation by a thread that no instruction runs on, fails the run.
// Not for: BLAS and OpenMP internals, which do not allocate through ATen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bayplan::exec {

/// Whom an error names. `describe` renders the instruction's text; it runs only on failure.
struct RegionOwner {
  int rank = -1;
  std::int64_t step = 0;
  const void* context = nullptr;
  std::string (*describe)(const void* context) = nullptr;
};

/// Bump allocation over [begin, begin + bytes), for one thread. Bytes come back when the latest
/// block is freed, or when all are.
class WorkspaceRegion {
 public:
  WorkspaceRegion() = default;
  /// `begin` must be aligned to kTemporaryAlignment.
  WorkspaceRegion(std::byte* begin, std::int64_t bytes, const RegionOwner& owner);

  /// Throws ExecutorError when the region is too small.
  void* allocate(std::size_t bytes);
  void release(void* block);
  bool contains(const void* block) const { return block >= begin_ && block < end_; }

  /// Share `index` of `count` equal shares of the bytes that are free now, for another thread.
  WorkspaceRegion share(int index, int count) const;
  /// Counts the use of shares that ran at the same time.
  void add_shares_used(std::int64_t bytes);

  /// Most bytes in use at once so far.
  std::int64_t used() const { return used_; }

 private:
  std::byte* begin_ = nullptr;
  std::byte* top_ = nullptr;
  std::byte* end_ = nullptr;
  std::int64_t live_ = 0;
  std::int64_t used_ = 0;
  RegionOwner owner_;
};

/// Installs the hook once per process; allocations outside any scope behave as before.
void install_allocator_hook();

/// Region of the calling thread, or nullptr.
WorkspaceRegion* current_region();

/// Makes `region` the calling thread's region. While any scope is open in the process, a thread
/// without one may not allocate through ATen.
class RegionScope {
 public:
  explicit RegionScope(WorkspaceRegion* region);
  ~RegionScope();
  RegionScope(const RegionScope&) = delete;
  RegionScope& operator=(const RegionScope&) = delete;

 private:
  WorkspaceRegion* previous_;
};

}  // namespace bayplan::exec
