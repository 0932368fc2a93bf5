// Lowering a 96-layer model on 16 stages x 64 replicas with 64 micro-batches, against the naive
// way: one list per rank instead of per rank class. Counters: cpu_ms of both and vs_per_rank.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "models/build_model.h"
#include "planner/program/lower.h"

namespace {

using namespace bayplan;

constexpr int kStages = 16, kReplicas = 64, kMicroBatches = 64;

Cluster cluster_of(int nodes, int devices) {
  Cluster c;
  c.groups.resize(1);
  c.groups[0].nodes = nodes;
  c.groups[0].devices_per_node = devices;
  return c;
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void lower_96_layers_1024_ranks(benchmark::State& state) {
  Architecture a;
  a.name = "bench";
  a.family = "gpt2";
  a.layers = 96;
  a.hidden = 12288;
  a.heads = a.kv_heads = 96;
  a.head_dim = 128;
  a.ffn = 4 * a.hidden;
  a.vocab = 50257;
  a.max_seq = 2048;
  a.tied = false;
  const ModelGraph graph = build_model(a, false);
  Plan plan;
  plan.job.seq = 2048;
  plan.job.micro_batch = 1;
  plan.job.global_batch = kReplicas * kMicroBatches;
  plan.job.precision = precision_of(DType::kBf16);
  plan.mesh.pp = kStages;
  plan.mesh.dp = kReplicas;
  plan.stages = even_stages(graph, kStages, 1);
  plan.replicas.assign(kReplicas, {kMicroBatches});
  const Cluster cluster = cluster_of(kStages * kReplicas / 8, 8);
  std::vector<double> ours, copied;
  for (auto _ : state) {
    const double start = cpu_seconds();
    const auto program = lower(plan, graph, cluster);
    const double lowered = cpu_seconds();
    if (!program) {
      state.SkipWithError(program.error().message.c_str());
      return;
    }
    // What a list per rank would add: eight ranks of one class, scaled to all.
    constexpr int kSample = 8;
    for (int r = 0; r < kSample; ++r) {
      RankClass rank = program->classes[static_cast<std::size_t>(r)];
      benchmark::DoNotOptimize(rank);
    }
    const double end = cpu_seconds();
    ours.push_back(lowered - start);
    copied.push_back(ours.back() + (end - lowered) / kSample * (kStages * kReplicas));
    state.SetIterationTime(ours.back());
  }
  state.counters["ours_ms"] = median(ours) * 1e3;
  state.counters["per_rank_ms"] = median(copied) * 1e3;
  state.counters["vs_per_rank"] = median(copied) / median(ours);
}
BENCHMARK(lower_96_layers_1024_ranks)
    ->UseManualTime()
    ->Iterations(21)
    ->Unit(benchmark::kMillisecond);

}  // namespace
