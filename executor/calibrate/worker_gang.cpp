#include "executor/calibrate/worker_gang.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

namespace bayplan::exec {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct WorkerTime {
  std::vector<double> calls;
  double alone = 0.0;
  double total = 0.0;
  std::exception_ptr failure;
};

/// Gives each worker a processor of its own, as far as they go; the scheduler takes a while to
/// spread new threads.
void pin_to_processor(int worker) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int skip = worker % std::max(1, CPU_COUNT(&allowed));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

void time_calls(const GangOptions& options, const TimedCall& call, WorkerTime& out) {
  std::int64_t n = options.warm_calls;
  const Clock::time_point start = Clock::now();
  Clock::time_point last = start;
  do {
    call(n++);
    const Clock::time_point now = Clock::now();
    out.calls.push_back(std::chrono::duration<double>(now - last).count());
    last = now;
  } while (static_cast<std::int64_t>(out.calls.size()) < options.least_calls ||
           seconds_since(start) < options.seconds);
  out.total = std::chrono::duration<double>(last - start).count();
}

}  // namespace

double median(std::vector<double>& values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

GangTime time_gang(const GangOptions& options, const std::function<TimedCall(int worker)>& make) {
  std::vector<WorkerTime> times(static_cast<std::size_t>(options.workers));
  std::barrier<> ready(options.workers);
  std::atomic<int> timing{options.workers};
  const auto work = [&](int worker) {
    WorkerTime& out = times[static_cast<std::size_t>(worker)];
    TimedCall call;
    if (options.pin) pin_to_processor(worker);
    try {
      call = make(worker);
      for (std::int64_t i = 0; i < options.warm_calls; ++i) call(i);
    } catch (...) {
      out.failure = std::current_exception();
    }
    ready.arrive_and_wait();
    try {
      if (worker == 0 && !out.failure) {
        WorkerTime first;
        time_calls(options, call, first);
        out.alone = median(first.calls);
      }
    } catch (...) {
      out.failure = std::current_exception();
    }
    ready.arrive_and_wait();
    try {
      if (!out.failure && (worker > 0 || options.workers > 1)) time_calls(options, call, out);
    } catch (...) {
      out.failure = std::current_exception();
    }
    --timing;
    // Keep the core as busy as it was for those who are not done.
    for (std::int64_t i = 0; timing > 0 && !out.failure; ++i) call(i);
  };
  std::vector<std::thread> threads;
  for (int w = 1; w < options.workers; ++w) threads.emplace_back(work, w);
  // The first worker is a thread too: rank threads start as fresh threads, not as main.
  std::thread first(work, 0);
  first.join();
  for (std::thread& t : threads) t.join();

  GangTime result;
  for (const WorkerTime& t : times) {
    if (t.failure) std::rethrow_exception(t.failure);
  }
  result.alone = times.front().alone;
  if (options.workers == 1) {
    result.busy = result.alone;
    result.calls_per_second = 1.0 / result.alone;
    return result;
  }
  for (WorkerTime& t : times) {
    result.calls_per_second += static_cast<double>(t.calls.size()) / t.total;
    result.busy += median(t.calls) / options.workers;
  }
  return result;
}

}  // namespace bayplan::exec
