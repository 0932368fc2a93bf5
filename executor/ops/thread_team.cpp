#include "executor/ops/thread_team.h"

#include <ATen/Parallel.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "executor/memory/allocator_hook_torch.h"

namespace bayplan::exec {
namespace {

/// About 50 µs: longer than the gap between two operators, shorter than a time slice.
constexpr int kSpins = 1000;

void pause_core() {
#ifdef __x86_64__
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

template <class Condition>
bool spin_until(const Condition& condition) {
  for (int i = 0; i < kSpins; ++i) {
    if (condition()) return true;
    pause_core();
  }
  return condition();
}

class ThreadTeam {
 public:
  explicit ThreadTeam(int workers) {
    for (int w = 0; w < workers; ++w) workers_.emplace_back([this, w] { work(w); });
  }

  ~ThreadTeam() {
    stop_ = true;
    next_job();
    for (std::thread& worker : workers_) worker.join();
  }

  int workers() const { return static_cast<int>(workers_.size()); }

  void run(int threads, std::int64_t tasks, void (*function)(const void*, std::int64_t),
           const void* body) {
    WorkspaceRegion* region = current_region();
    shares_.clear();
    for (int t = 0; region != nullptr && t < threads; ++t) {
      shares_.push_back(region->share(t, threads));
    }
    function_ = function;
    body_ = body;
    tasks_ = tasks;
    extra_threads_ = threads - 1;
    next_task_.store(0, std::memory_order_relaxed);
    pending_.store(workers(), std::memory_order_relaxed);
    error_ = nullptr;
    next_job();
    take_tasks(0);
    if (!spin_until([this] { return pending_.load(std::memory_order_acquire) == 0; })) {
      for (int left = pending_.load(); left != 0; left = pending_.load()) pending_.wait(left);
    }
    if (region != nullptr) {
      std::int64_t used = 0;
      for (const WorkspaceRegion& share : shares_) used += share.used();
      region->add_shares_used(used);
    }
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void next_job() {
    job_.fetch_add(1, std::memory_order_release);
    job_.notify_all();
  }

  void work(int worker) {
    at::set_num_threads(1);
    for (std::uint32_t done = 0;;) {
      const auto changed = [&] { return job_.load(std::memory_order_acquire) != done; };
      if (!spin_until(changed)) job_.wait(done, std::memory_order_acquire);
      if (!changed()) continue;
      ++done;
      if (stop_) return;
      if (worker < extra_threads_) take_tasks(worker + 1);
      if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
    }
  }

  void take_tasks(int thread) {
    std::optional<RegionScope> scope;
    if (!shares_.empty()) scope.emplace(&shares_[static_cast<std::size_t>(thread)]);
    try {
      for (std::int64_t i = next_task_++; i < tasks_; i = next_task_++) function_(body_, i);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
      next_task_ = tasks_;
    }
  }

  std::vector<std::thread> workers_;
  std::vector<WorkspaceRegion> shares_;
  std::atomic<std::uint32_t> job_{0};
  std::atomic<int> pending_{0};
  std::atomic<std::int64_t> next_task_{0};
  std::atomic<bool> stop_{false};
  void (*function_)(const void*, std::int64_t) = nullptr;
  const void* body_ = nullptr;
  std::int64_t tasks_ = 0;
  int extra_threads_ = 0;
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

ThreadTeam& team_of_this_thread(int workers) {
  thread_local std::unique_ptr<ThreadTeam> team;
  if (!team || team->workers() < workers) {
    team.reset();
    team = std::make_unique<ThreadTeam>(workers);
  }
  return *team;
}

}  // namespace

namespace detail {

void run_tasks(int threads, std::int64_t tasks, void (*run)(const void*, std::int64_t),
               const void* body) {
  const int used = static_cast<int>(std::min<std::int64_t>(threads, tasks));
  if (used <= 1) {
    for (std::int64_t i = 0; i < tasks; ++i) run(body, i);
    return;
  }
  team_of_this_thread(threads - 1).run(used, tasks, run, body);
}

}  // namespace detail
}  // namespace bayplan::exec
