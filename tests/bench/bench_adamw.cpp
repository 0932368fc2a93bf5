// AdamW on one flat shard against at::_fused_adamw_ and against copying memory, all on the same
// arrays in the same run. A benchmark iteration is one round in which every contestant updates
// once, in an order that rotates, so that a slow spell of the machine hits all alike.
// Counters: bytes per second from the medians over rounds, and vs_torch, vs_copy = ratio of those
// (above 1: ours is faster). The time column is ours.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/optim.h"

namespace {

using bayplan::kernels::AdamOptions;
using bayplan::kernels::bf16;
using bayplan::kernels::Range;

constexpr std::int64_t kParameters = 16 << 20;
constexpr int kRounds = 31;

// grad read, master, m and v read and written; plus the bf16 weight written.
constexpr double kBytesF32 = 28.0;
constexpr double kBytesBf16 = 30.0;

/// Runs body on `threads` equal parts of [0, n).
void in_parallel(int threads, std::int64_t n, const std::function<void(Range)>& body) {
  std::vector<std::thread> workers;
  for (int t = 1; t < threads; ++t) {
    workers.emplace_back(body, Range{n * t / threads, n * (t + 1) / threads});
  }
  body(Range{0, n / threads});
  for (std::thread& worker : workers) {
    worker.join();
  }
}

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Shard {
  explicit Shard(std::int64_t n)
      : grad(at::randn({n})),
        master(at::randn({n})),
        m(at::randn({n}).mul_(0.1)),
        v(at::rand({n}).add_(0.1)),
        weight(at::zeros({n}, at::kBFloat16)),
        step(at::full({}, 10.0)) {}

  at::Tensor grad, master, m, v, weight, step;
};

void adamw(benchmark::State& state, bool bf16_weight) {
  const int threads = static_cast<int>(state.range(0));
  const int threads_before = at::get_num_threads();
  at::set_num_threads(threads);
  const std::int64_t n = kParameters;
  Shard shard(n);

  AdamOptions options;
  options.weight_decay = 0.1;
  options.bias_correction1 = bayplan::kernels::adam_bias_correction(options.beta1, 10);
  options.bias_correction2 = bayplan::kernels::adam_bias_correction(options.beta2, 10);
  const float grad_scale = 1.0f;
  float* const master = shard.master.mutable_data_ptr<float>();
  float* const m = shard.m.mutable_data_ptr<float>();
  float* const v = shard.v.mutable_data_ptr<float>();
  const float* const grad = shard.grad.const_data_ptr<float>();
  bf16* const weight = bf16_weight ? static_cast<bf16*>(shard.weight.mutable_data_ptr()) : nullptr;

  const auto ours = [&] {
    in_parallel(threads, n, [&](Range part) {
      bayplan::kernels::adamw_step(options, &grad_scale, grad, master, m, v, weight, part);
    });
  };
  const auto torch = [&] {
    at::_fused_adamw_({shard.master}, {shard.grad}, {shard.m}, {shard.v}, {}, {shard.step},
                      options.lr, options.beta1, options.beta2, options.weight_decay, options.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
    if (bf16_weight) {
      shard.weight.copy_(shard.master);
    }
  };
  const auto copy = [&] {
    in_parallel(threads, n, [&](Range part) {
      const std::size_t bytes = static_cast<std::size_t>(part.end - part.begin) * sizeof(float);
      std::memcpy(m + part.begin, v + part.begin, bytes);
      std::memcpy(v + part.begin, m + part.begin, bytes);
    });
  };

  const std::vector<std::function<void()>> contestants = {ours, torch, copy};
  std::vector<std::vector<double>> times(contestants.size());
  for (const auto& contestant : contestants) {
    contestant();
  }
  std::size_t round = 0;
  for (auto _ : state) {
    for (std::size_t k = 0; k < contestants.size(); ++k) {
      const std::size_t which = (k + round) % contestants.size();
      times[which].push_back(seconds(contestants[which]));
    }
    state.SetIterationTime(times[0].back());
    ++round;
  }
  at::set_num_threads(threads_before);

  const double elements = static_cast<double>(n);
  const double ours_rate = elements * (bf16_weight ? kBytesBf16 : kBytesF32) / median(times[0]);
  // Torch's copy to bf16 reads the master once more.
  const double torch_rate =
      elements * (bf16_weight ? kBytesF32 + 6.0 : kBytesF32) / median(times[1]);
  const double copy_rate = elements * 16.0 / median(times[2]);
  state.counters["ours_B/s"] = ours_rate;
  state.counters["torch_B/s"] = torch_rate;
  state.counters["copy_B/s"] = copy_rate;
  state.counters["vs_torch"] = ours_rate / torch_rate;
  state.counters["vs_torch_time"] = median(times[1]) / median(times[0]);
  state.counters["vs_copy"] = ours_rate / copy_rate;
}

void adamw_f32(benchmark::State& state) { adamw(state, false); }
void adamw_bf16_weight(benchmark::State& state) { adamw(state, true); }

BENCHMARK(adamw_f32)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseManualTime()
    ->Iterations(kRounds)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(adamw_bf16_weight)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseManualTime()
    ->Iterations(kRounds)
    ->Unit(benchmark::kMillisecond);

}  // namespace
