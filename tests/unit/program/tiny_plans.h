// Small models, clusters and plans for tests of lowering and of what consumes a Program.
#pragma once

#include <string>

#include "models/build_model.h"
#include "planner/core/cluster.h"
#include "planner/core/plan.h"
#include "planner/program/lower.h"

namespace bayplan::test {

/// GPT-2 shape: hidden 64, 4 heads, vocabulary 97.
inline Architecture tiny_architecture(int layers, bool tied) {
  Architecture a;
  a.name = "tiny";
  a.family = "gpt2";
  a.layers = layers;
  a.hidden = 64;
  a.heads = 4;
  a.kv_heads = 4;
  a.head_dim = 16;
  a.ffn = 256;
  a.vocab = 97;
  a.max_seq = 16;
  a.tied = tied;
  return a;
}

/// One node of `devices` CPU devices.
inline Cluster tiny_cluster(int devices) {
  Cluster c;
  c.name = "test";
  NodeGroup g;
  g.devices_per_node = devices;
  g.cores = 2;
  g.device.name = "cpu";
  g.device.device_class = DeviceClass::kCpu;
  g.device.memory = 1_GiB;
  g.device.peak = {{DType::kFp64, FlopPerSecond(1e9)},
                   {DType::kFp32, FlopPerSecond(2e9)},
                   {DType::kBf16, FlopPerSecond(4e9)}};
  g.device.memory_bandwidth = BytesPerSecond(1e10);
  g.device.gemm_efficiency = g.device.attention_efficiency = g.device.memory_efficiency = 1.0;
  g.intra_node = {Seconds(1e-6), BytesPerSecond(1e9), Provenance::kDefault};
  c.groups.push_back(g);
  c.inter_node = g.intra_node;
  return c;
}

/// Llama shape of the same size: two kv heads, no biases.
inline Architecture tiny_llama(int layers, bool tied) {
  Architecture a = tiny_architecture(layers, tied);
  a.family = "llama";
  a.kv_heads = 2;
  a.norm = Architecture::Norm::kRmsNorm;
  a.position = Architecture::Position::kRope;
  a.activation = Architecture::Activation::kSwiglu;
  a.qkv_bias = a.attention_out_bias = a.mlp_bias = false;
  return a;
}

struct TinyShape {
  int layers = 2;
  bool llama = false;
  bool tied = false;
  int pp = 1;
  int dp = 1;
  int micro_batches = 1;
  int zero = 0;
  GradReduce grad_reduce = GradReduce::kStep;
  Reshard reshard = Reshard::kUnit;
  int prefetch = 1;
  Recompute recompute = Recompute::kNone;
  Offload offload = {};
  std::vector<int> recompute_units = {};
  std::string schedule = "1f1b";
  int chunks = 1;
  DType compute = DType::kFp32;
  double dropout = 0.0;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
};

inline ModelGraph tiny_graph(const TinyShape& s) {
  return build_model(s.llama ? tiny_llama(s.layers, s.tied) : tiny_architecture(s.layers, s.tied),
                     s.dropout > 0.0);
}

/// Micro-batch 1, sequence 16.
inline Plan tiny_plan(const TinyShape& s, const ModelGraph& graph) {
  Plan p;
  p.model = "tiny";
  p.cluster = "test";
  p.job.seq = 16;
  p.job.micro_batch = 1;
  p.job.global_batch = static_cast<std::int64_t>(s.micro_batches) * s.dp;
  p.job.precision = precision_of(s.compute);
  p.job.dropout = s.dropout;
  p.job.optimizer = s.optimizer;
  p.mesh.pp = s.pp;
  p.mesh.dp = s.dp;
  p.schedule = s.schedule;
  p.grad_reduce = s.grad_reduce;
  p.reshard = s.reshard;
  p.prefetch = s.prefetch;
  p.recompute = s.recompute;
  p.offload = s.offload;
  p.recompute_units = s.recompute_units;
  p.chunks_per_rank = s.chunks;
  p.stages = even_stages(graph, s.pp * s.chunks, s.zero);
  p.replicas.assign(static_cast<std::size_t>(s.dp), {s.micro_batches});
  return p;
}

inline Program tiny_program(const TinyShape& s) {
  const ModelGraph graph = tiny_graph(s);
  return std::move(*lower(tiny_plan(s, graph), graph, tiny_cluster(s.pp * s.dp)));
}

}  // namespace bayplan::test
