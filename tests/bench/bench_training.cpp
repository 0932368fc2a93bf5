// A training step in one process with 2 threads against the same GPT-2 in plain torch autograd
// with torch's fused AdamW, a few steps of each in turn. Counters: medians in ms and vs_torch, the
// ratio of medians (above 1: ours is faster).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "executor/data/data_source.h"
#include "executor/device_torch.h"
#include "executor/run.h"
#include "models/build_model.h"
#include "planner/program/lower.h"

namespace {

using namespace bayplan;

// The shape of the outside reference: 4 layers, hidden 256, sequence 256, micro-batch 4.
constexpr std::int64_t kLayers = 4, kHidden = 256, kHeads = 4, kSeq = 256, kBatch = 4,
                       kVocab = 50257;
constexpr int kThreads = 2, kRounds = 4, kSteps = 5, kWarmUp = 2;

/// GPT-2 by autograd; parameters are plain leaf tensors.
class AutogradGpt {
 public:
  AutogradGpt() {
    wte_ = add({kVocab, kHidden});
    wpe_ = add({kSeq, kHidden});
    for (std::int64_t l = 0; l < kLayers; ++l) {
      blocks_.push_back({add({kHidden}), add({kHidden}), add({3 * kHidden, kHidden}),
                         add({3 * kHidden}), add({kHidden, kHidden}), add({kHidden}),
                         add({kHidden}), add({kHidden}), add({4 * kHidden, kHidden}),
                         add({4 * kHidden}), add({kHidden, 4 * kHidden}), add({kHidden})});
    }
    norm_weight_ = add({kHidden});
    norm_bias_ = add({kHidden});
    ids_ = at::randint(kVocab, {kBatch, kSeq}, at::kLong);
    labels_ = at::randint(kVocab, {kBatch, kSeq}, at::kLong);
    for (const at::Tensor& p : parameters_) {
      moment1_.push_back(at::zeros_like(p));
      moment2_.push_back(at::zeros_like(p));
      steps_.push_back(at::ones({}));
    }
  }

  void step() {
    at::Tensor x = at::embedding(wte_, ids_) + wpe_;
    for (const std::vector<at::Tensor>& b : blocks_) {
      const at::Tensor qkv = at::linear(at::layer_norm(x, {kHidden}, b[0], b[1]), b[2], b[3])
                                 .view({kBatch, kSeq, 3, kHeads, kHidden / kHeads})
                                 .permute({2, 0, 3, 1, 4});
      const at::Tensor attended =
          at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, true);
      x = x + at::linear(attended.transpose(1, 2).reshape({kBatch, kSeq, kHidden}), b[4], b[5]);
      const at::Tensor up = at::linear(at::layer_norm(x, {kHidden}, b[6], b[7]), b[8], b[9]);
      x = x + at::linear(at::gelu(up, "tanh"), b[10], b[11]);
    }
    const at::Tensor logits =
        at::layer_norm(x, {kHidden}, norm_weight_, norm_bias_).matmul(wte_.t());
    at::cross_entropy_loss(logits.flatten(0, 1), labels_.flatten()).backward();
    c10::NoGradGuard guard;
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& p : parameters_) gradients.push_back(p.grad());
    at::_fused_adamw_(parameters_, gradients, moment1_, moment2_, {}, steps_, 1e-4, 0.9, 0.95, 0.1,
                      1e-8, false, false);
    for (at::Tensor& p : parameters_) p.mutable_grad().reset();
  }

 private:
  at::Tensor add(std::vector<std::int64_t> shape) {
    parameters_.push_back((at::randn(shape) * 0.02).requires_grad_());
    return parameters_.back();
  }

  std::vector<at::Tensor> parameters_, moment1_, moment2_, steps_;
  at::Tensor wte_, wpe_, norm_weight_, norm_bias_, ids_, labels_;
  std::vector<std::vector<at::Tensor>> blocks_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Program single_process_program() {
  Architecture a;
  a.name = "bench";
  a.family = "gpt2";
  a.layers = kLayers;
  a.hidden = kHidden;
  a.heads = a.kv_heads = kHeads;
  a.head_dim = kHidden / kHeads;
  a.ffn = 4 * kHidden;
  a.vocab = kVocab;
  a.max_seq = kSeq;
  const ModelGraph graph = build_model(a, false);
  Plan plan;
  plan.job.seq = kSeq;
  plan.job.global_batch = plan.job.micro_batch = kBatch;
  plan.replicas = {{1}};
  plan.stages = even_stages(graph, 1, 0);
  plan.threads_per_rank = kThreads;
  Cluster one;
  one.groups.resize(1);
  return std::move(*lower(plan, graph, one));
}

void training_step_f32(benchmark::State& state) {
  const Program program = single_process_program();
  const auto data = exec::synthetic_data(0, kSeq, kVocab);
  for (auto _ : state) {
    std::vector<double> ours, theirs;
    at::set_num_threads(kThreads);
    AutogradGpt model;
    for (int round = 0; round < kRounds; ++round) {
      exec::RunOptions options;
      options.steps = kSteps;
      options.hash_state = false;
      options.on_step = [&](const exec::StepMetrics& m) {
        if (m.step > kWarmUp) ours.push_back(m.seconds);
      };
      const auto result = exec::run_local(
          program, [](int rank) { return exec::make_torch_cpu_device(rank, kThreads); }, *data,
          nullptr, options);
      if (!result) {
        state.SkipWithError(result.error().message.c_str());
        return;
      }
      for (int step = 1; step <= kSteps; ++step) {
        const auto start = std::chrono::steady_clock::now();
        model.step();
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        if (step > kWarmUp) theirs.push_back(seconds.count());
      }
    }
    state.SetIterationTime(median(ours));
    state.counters["ours_ms"] = median(ours) * 1e3;
    state.counters["torch_ms"] = median(theirs) * 1e3;
    state.counters["vs_torch"] = median(theirs) / median(ours);
  }
}
BENCHMARK(training_step_f32)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
