#include "executor/calibrate/machine_bench.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "executor/calibrate/worker_gang.h"
#include "kernels/optim.h"
#include "kernels/ranked_sum.h"

namespace bayplan::exec {
namespace {

using Clock = std::chrono::steady_clock;

// Per worker. A step touches all of a rank's state once, so it comes from memory, not from cache.
constexpr std::int64_t kPoolBytes = std::int64_t{32} << 20;
constexpr std::int64_t kBlockBytes = std::int64_t{2} << 20;
constexpr std::int64_t kBlocks = kPoolBytes / kBlockBytes;
constexpr std::int64_t kStateElements = std::int64_t{1} << 20;

template <class T>
std::shared_ptr<std::vector<T>> filled(std::int64_t n, T value) {
  return std::make_shared<std::vector<T>>(static_cast<std::size_t>(n), value);
}

double per_second(double amount, const GangTime& time) { return amount / time.busy; }

/// Optimizer update of kStateElements; G gradient, S state, W separate weights (bf16) or none.
template <class S, class W>
TimedCall update_call() {
  const auto gradient = filled<S>(kStateElements, S(1e-3));
  const auto master = filled<S>(kStateElements, S(0.5));
  const auto m = filled<S>(kStateElements, S(0));
  const auto v = filled<S>(kStateElements, S(0));
  const auto weight =
      filled<kernels::bf16>(std::is_same_v<W, kernels::bf16> ? kStateElements : 1, {});
  kernels::AdamOptions options;
  options.weight_decay = 0.1;
  return [=](std::int64_t) {
    const S scale = S(1);
    const kernels::Range all{0, kStateElements};
    if constexpr (std::is_same_v<S, double>) {
      kernels::adamw_step(options, &scale, gradient->data(), master->data(), m->data(), v->data(),
                          all);
    } else {
      kernels::bf16* out = std::is_same_v<W, kernels::bf16> ? weight->data() : nullptr;
      kernels::adamw_step(options, &scale, gradient->data(), master->data(), m->data(), v->data(),
                          out, all);
    }
  };
}

template <class S>
TimedCall norm_call() {
  const auto gradient = filled<S>(kStateElements, S(1e-3));
  const auto sink = filled<double>(1, 0.0);
  return [=](std::int64_t) {
    sink->front() += kernels::sum_of_squares(gradient->data(), kStateElements);
  };
}

template <class S>
TimedCall sum_call() {
  const auto a = filled<S>(kStateElements, S(1));
  const auto b = filled<S>(kStateElements, S(1e-6));
  return [=](std::int64_t) {
    const S* inputs[] = {a->data(), b->data()};
    kernels::sum_in_rank_order<S>(a->data(), inputs, 2, {0, kStateElements});
  };
}

/// State and reduction type S; W is bf16 when the weights are apart from the master.
template <class S, class W>
StreamRates stream_rates_of(DType compute, const GangOptions& gang) {
  StreamRates rates;
  rates.dtype = compute;
  const double n = static_cast<double>(kStateElements);
  rates.update_elements = per_second(n, time_gang(gang, [](int) { return update_call<S, W>(); }));
  rates.norm_elements = per_second(n, time_gang(gang, [](int) { return norm_call<S>(); }));
  rates.sum_bytes =
      per_second(3.0 * n * sizeof(S), time_gang(gang, [](int) { return sum_call<S>(); }));
  return rates;
}

/// Two threads that hand a turn back and forth.
class PingPong {
 public:
  /// Waits for turn `mine`, then passes it on; false when stopped.
  bool pass(int mine) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == mine || stopped_; });
    if (stopped_) return false;
    turn_ = 1 - mine;
    changed_.notify_all();
    return true;
  }
  void stop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;
  bool stopped_ = false;
};

/// Threads that compute until destroyed.
class BusyThreads {
 public:
  explicit BusyThreads(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        double x = 1.0;
        while (!stop_.load(std::memory_order_relaxed)) {
          for (int k = 0; k < 4096; ++k) x = x * 1.0000001 + 1e-9;
          sink_ = x;
        }
      });
    }
  }
  ~BusyThreads() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<double> sink_{0.0};
  std::vector<std::thread> threads_;
};

}  // namespace

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

StreamTime measure_copy(int workers, double seconds) {
  const GangTime time = time_gang({workers, seconds, 8, kBlocks}, [](int) -> TimedCall {
    const auto pool = filled<char>(kPoolBytes, 1);
    return [pool](std::int64_t call) {
      // From one half of the pool to the other, so that source and target are both cold.
      const std::int64_t block = call % (kBlocks / 2);
      std::memcpy(pool->data() + block * kBlockBytes,
                  pool->data() + (block + kBlocks / 2) * kBlockBytes,
                  static_cast<std::size_t>(kBlockBytes));
    };
  });
  return {static_cast<double>(kBlockBytes) / time.busy,
          static_cast<double>(kBlockBytes) / time.alone};
}

StreamTime measure_fill(int workers, double seconds) {
  const GangTime time = time_gang({workers, seconds, 8, kBlocks}, [](int) -> TimedCall {
    const auto pool = filled<char>(kPoolBytes, 1);
    return [pool](std::int64_t call) {
      std::memset(pool->data() + call % kBlocks * kBlockBytes, 0,
                  static_cast<std::size_t>(kBlockBytes));
    };
  });
  return {static_cast<double>(kBlockBytes) / time.busy,
          static_cast<double>(kBlockBytes) / time.alone};
}

StreamRates measure_streams(DType compute, int workers, double seconds) {
  const GangOptions gang{workers, seconds, 3, 1};
  if (compute == DType::kFp64) return stream_rates_of<double, double>(compute, gang);
  if (compute == DType::kBf16) return stream_rates_of<float, kernels::bf16>(compute, gang);
  return stream_rates_of<float, float>(compute, gang);
}

Seconds measure_wake(int busy, double seconds) {
  const BusyThreads load(busy);
  PingPong turns;
  std::thread other([&] {
    while (turns.pass(1)) {
    }
  });
  const Clock::time_point start = Clock::now();
  std::int64_t passes = 0;
  double elapsed = 0.0;
  while (elapsed < seconds && turns.pass(0)) {
    ++passes;
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  }
  turns.stop();
  other.join();
  // Each of our turns but the first needed two wake-ups.
  return Seconds(passes > 1 ? elapsed / static_cast<double>(2 * (passes - 1)) : elapsed);
}

Seconds measure_instruction(double seconds) {
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  std::thread waiter([&] {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return stop; });
  });
  const GangTime time = time_gang({1, seconds, 100, 10}, [&](int) -> TimedCall {
    return [&](std::int64_t) {
      // Two short critical sections and one notification, as RankRunner::run_inline.
      { const std::lock_guard<std::mutex> lock(mutex); }
      { const std::lock_guard<std::mutex> lock(mutex); }
      const std::lock_guard<std::mutex> lock(mutex);
      changed.notify_all();
    };
  });
  {
    const std::lock_guard<std::mutex> lock(mutex);
    stop = true;
    changed.notify_all();
  }
  waiter.join();
  return Seconds(time.alone);
}

}  // namespace bayplan::exec
