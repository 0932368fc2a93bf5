#include "tests/property/random_program.h"

#include <algorithm>
#include <random>

#include "models/build_model.h"
#include "planner/core/check.h"
#include "planner/program/lower.h"

namespace bayplan::test {

std::string to_string(const TinyPlan& p) {
  return "pp " + std::to_string(p.pp) + " dp " + std::to_string(p.dp) + " m " +
         std::to_string(p.micro_batches) + " zero " + std::to_string(p.zero) +
         (p.each_micro_batch ? " reduced each micro-batch" : "") + " reshard " +
         std::to_string(static_cast<int>(p.reshard)) + " prefetch " + std::to_string(p.prefetch) +
         " recompute " + recompute_name(p.recompute) +
         (p.offload.optimizer ? " offload optimizer" : "") +
         (p.offload.activations ? " offload activations" : "") +
         (p.mixed_zero ? " last stage otherwise" : "") + ' ' + p.schedule + " x " +
         std::to_string(p.chunks) + (p.tied ? " tied" : " untied") +
         (p.llama ? " llama" : " gpt2") + " layers " + std::to_string(p.layers) +
         (p.bf16 ? " bf16" : " fp32") + (p.dropout ? " dropout " : " ") +
         std::string(optimizer_spec(p.optimizer).name);
}

TinyPlan random_plan(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Not uniform_int_distribution: its values differ between standard libraries.
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  TinyPlan p;
  p.pp = draw(1, 4);
  p.dp = draw(1, 3);
  p.micro_batches = draw(1, 6);
  p.zero = draw(0, 3);
  p.each_micro_batch = draw(0, 3) < p.zero;
  p.reshard = static_cast<Reshard>(draw(0, 2));
  p.prefetch = draw(0, 2);
  p.recompute = static_cast<Recompute>(std::max(0, draw(-1, 2)));
  p.offload.optimizer = draw(0, 3) == 0;
  p.offload.activations = draw(0, 3) == 0;
  p.mixed_zero = draw(0, 3) == 0;
  const ScheduleSpec& spec =
      schedules()[static_cast<std::size_t>(draw(0, static_cast<int>(schedules().size()) - 1))];
  p.schedule = spec.name;
  p.chunks = draw(spec.min_chunks, std::min(spec.max_chunks, 2));
  const bool same_rank =
      p.chunks > 1 && (p.pp == 1 || p.schedule == "zbv" || p.schedule == "dualpipev");
  p.tied = draw(0, 1) == 1 && !same_rank;
  p.llama = draw(0, 3) == 0;
  p.layers = std::max(p.pp * p.chunks - 2, draw(1, 3));
  p.bf16 = draw(0, 2) == 0;
  p.dropout = draw(0, 3) == 0;
  p.optimizer = static_cast<OptimizerKind>(draw(0, static_cast<int>(kOptimizers.size()) - 1));
  const OptimizerSpec& optimizer = optimizer_spec(p.optimizer);
  if (!p.bf16 && !optimizer.moment1 && !optimizer.moment2) p.offload.optimizer = false;
  return p;
}

Program lower_tiny(const TinyPlan& tiny) {
  Architecture a;
  a.name = "tiny";
  a.family = tiny.llama ? "llama" : "gpt2";
  a.layers = tiny.layers;
  a.hidden = 16;
  a.heads = 2;
  a.kv_heads = tiny.llama ? 1 : 2;
  a.head_dim = 8;
  a.ffn = 32;
  a.vocab = 13;
  a.max_seq = 8;
  a.tied = tiny.tied;
  if (tiny.llama) {
    a.norm = Architecture::Norm::kRmsNorm;
    a.position = Architecture::Position::kRope;
    a.activation = Architecture::Activation::kSwiglu;
    a.qkv_bias = a.attention_out_bias = a.mlp_bias = false;
  }
  const ModelGraph graph = build_model(a, tiny.dropout);

  Plan plan;
  plan.model = a.name;
  plan.mesh.pp = tiny.pp;
  plan.mesh.dp = tiny.dp;
  plan.schedule = tiny.schedule;
  plan.grad_reduce = tiny.each_micro_batch ? GradReduce::kMicroBatch : GradReduce::kStep;
  plan.reshard = tiny.reshard;
  plan.prefetch = tiny.prefetch;
  plan.recompute = tiny.recompute;
  plan.offload = tiny.offload;
  plan.chunks_per_rank = tiny.chunks;
  plan.job.seq = 4;
  plan.job.micro_batch = 1;
  plan.job.global_batch = static_cast<std::int64_t>(tiny.micro_batches) * tiny.dp;
  plan.job.precision = precision_of(tiny.bf16 ? DType::kBf16 : DType::kFp32);
  plan.job.optimizer = tiny.optimizer;
  plan.job.dropout = tiny.dropout ? 0.1 : 0.0;
  plan.stages = even_stages(graph, tiny.pp * tiny.chunks, tiny.zero);
  if (tiny.mixed_zero) plan.stages.back().zero = 3 - tiny.zero;
  plan.replicas.assign(static_cast<std::size_t>(tiny.dp), ReplicaPlan{tiny.micro_batches});

  Cluster cluster;
  cluster.groups.emplace_back();
  cluster.groups.back().devices_per_node = tiny.pp * tiny.dp;
  cluster.groups.back().device.device_class = DeviceClass::kCpu;

  Result<Program> program = lower(plan, graph, cluster);
  BAYPLAN_CHECK(program.ok(), program.error().where + ": " + program.error().message);
  return std::move(program.value());
}

}  // namespace bayplan::test
