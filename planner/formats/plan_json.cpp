#include "planner/formats/plan_json.h"

#include "planner/formats/offload_text.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace bayplan {
namespace {

using nlohmann::ordered_json;

constexpr const char* kPlanSchema = "bayplan.plan/1";
// Counts stay where a product of three of them fits into 64 bits.
constexpr std::int64_t kMostSamples = std::int64_t{1} << 31;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
constexpr std::int64_t kMostUnits = 1 << 20;
constexpr int kMostThreads = 4096;

auto count(std::int64_t most, std::int64_t least = 1) {
  return [=](const JsonCursor& c) { return c.integer(least, most); };
}
auto real(double least, double most) {
  return [=](const JsonCursor& c) { return c.number(least, most); };
}
auto text() {
  return [](const JsonCursor& c) { return c.string(); };
}
auto flag() {
  return [](const JsonCursor& c) { return c.boolean(); };
}
std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerSpec& spec : kOptimizers) names.emplace_back(spec.name);
  return names;
}
auto word(std::vector<std::string> known) {
  return [known = std::move(known)](const JsonCursor& c) { return c.one_of(known); };
}

template <class T, class Read>
Result<std::vector<T>> read_list(const JsonCursor& at, Read&& read) {
  BAYPLAN_TRY(elements, at.elements());
  std::vector<T> out;
  for (const JsonCursor& element : elements) {
    BAYPLAN_TRY(value, read(element));
    out.push_back(value);
  }
  return out;
}

Result<TrainingJob> read_job(const JsonCursor& at) {
  TrainingJob job;
  std::string precision = "fp32", grad_dtype, optimizer = "adamw", attention = "auto";
  std::string lr_schedule = "constant";
  ObjectReader r(at);
  r.required("seq", job.seq, count(kMostTokens));
  r.required("global_batch", job.global_batch, count(kMostSamples));
  r.required("micro_batch", job.micro_batch, count(kMostSamples));
  r.optional("precision", precision, word({"fp64", "fp32", "bf16"}));
  r.optional("grad_dtype", grad_dtype, word({"fp64", "fp32"}));
  r.optional("optimizer", optimizer, word(optimizer_names()));
  r.optional("attention", attention, word({"auto", "flash"}));
  r.optional("learning_rate", job.learning_rate, real(0.0, 1e6));
  r.optional("lr_schedule", lr_schedule,
             word({kLearningRateScheduleNames.begin(), kLearningRateScheduleNames.end()}));
  r.optional("warmup_steps", job.warmup_steps, count(kMostSteps, 0));
  r.optional("decay_steps", job.decay_steps, count(kMostSteps, 0));
  r.optional("min_learning_rate", job.min_learning_rate, real(0.0, 1e6));
  r.optional("weight_decay", job.weight_decay, real(0.0, 1e6));
  r.optional("beta1", job.beta1, real(0.0, 1.0));
  r.optional("beta2", job.beta2, real(0.0, 1.0));
  r.optional("epsilon", job.epsilon, real(0.0, 1.0));
  r.optional("momentum", job.momentum, real(0.0, 1.0));
  r.optional("clip_norm", job.clip_norm, real(0.0, 1e12));
  r.optional("dropout", job.dropout, real(0.0, 0.999));
  r.optional("seed", job.seed, count(std::numeric_limits<std::int64_t>::max(), 0));
  r.optional("steps", job.steps, count(kMostSteps));
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  job.precision = precision_of(*parse_dtype(precision));
  if (!grad_dtype.empty() && parse_dtype(grad_dtype) != job.precision.gradient) {
    return at.error(
        "unsupported",
        fmt::format("grad_dtype {} with precision {} is not modelled", grad_dtype, precision),
        fmt::format("write {}", dtype_name(job.precision.gradient)));
  }
  job.optimizer = *parse_optimizer(optimizer);
  job.lr_schedule = *parse_learning_rate_schedule(lr_schedule);
  job.attention = attention == "flash" ? AttentionKind::kFlash : AttentionKind::kAuto;
  return job;
}

Result<Mesh> read_mesh(const JsonCursor& at) {
  Mesh mesh;
  ObjectReader r(at);
  r.required("pp", mesh.pp, count(kMostDevices));
  r.required("dp", mesh.dp, count(kMostDevices));
  r.optional("cp", mesh.cp, count(kMostDevices));
  r.optional("tp", mesh.tp, count(kMostDevices));
  r.optional("ep", mesh.ep, count(kMostDevices));
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  std::int64_t ranks = 1;
  for (const int degree : {mesh.pp, mesh.dp, mesh.cp, mesh.tp}) {
    ranks *= degree;
    if (ranks > kMostDevices) {
      return at.error("out-of-range",
                      fmt::format("the degrees multiply to more than {}", kMostDevices),
                      "use fewer ranks");
    }
  }
  return mesh;
}

Result<StagePlan> read_stage(const JsonCursor& at) {
  StagePlan stage;
  ObjectReader r(at);
  r.required("first_unit", stage.first_unit, count(kMostUnits, 0));
  r.required("unit_count", stage.unit_count, count(kMostUnits, 0));
  r.optional("zero", stage.zero, count(3, 0));
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  return stage;
}

Result<ReplicaPlan> read_replica(const JsonCursor& at) {
  ReplicaPlan replica;
  ObjectReader r(at);
  r.required("micro_batches", replica.micro_batches, count(kMostSamples));
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  return replica;
}

Result<ModelDescription> read_architecture(const JsonCursor& at, const std::string& name) {
  ModelDescription model;
  Architecture& a = model.architecture;
  a.name = name;
  std::string norm, position, activation;
  ObjectReader r(at);
  r.required("family", a.family, word({"gpt2", "llama"}));
  r.required("layers", a.layers, count(kMostUnits));
  r.required("hidden", a.hidden, count(kMostSamples));
  r.required("heads", a.heads, count(kMostSamples));
  r.required("kv_heads", a.kv_heads, count(kMostSamples));
  r.required("head_dim", a.head_dim, count(kMostSamples));
  r.required("ffn", a.ffn, count(kMostSamples));
  r.required("vocab", a.vocab, count(kMostSamples));
  r.required("max_seq", a.max_seq, count(kMostSamples));
  r.required("tied", a.tied, flag());
  r.required("norm", norm, word({"layer_norm", "rms_norm"}));
  r.required("position", position, word({"learned", "rope"}));
  r.required("activation", activation, word({"gelu", "swiglu"}));
  r.required("qkv_bias", a.qkv_bias, flag());
  r.required("attention_out_bias", a.attention_out_bias, flag());
  r.required("mlp_bias", a.mlp_bias, flag());
  r.required("qk_norm", a.qk_norm, flag());
  r.required("norm_epsilon", a.norm_epsilon, real(0.0, 1.0));
  r.required("rope_theta", a.rope_theta, real(1.0, 1e12));
  r.required("init_std", a.init_std, real(0.0, 10.0));
  r.optional("attention_window", model.attention_window, count(kMostTokens, 0));
  r.optional("not_executed", model.not_executed,
             [](const JsonCursor& c) { return read_list<std::string>(c, text()); });
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  a.norm = norm == "rms_norm" ? Architecture::Norm::kRmsNorm : Architecture::Norm::kLayerNorm;
  a.position =
      position == "rope" ? Architecture::Position::kRope : Architecture::Position::kLearned;
  a.activation =
      activation == "swiglu" ? Architecture::Activation::kSwiglu : Architecture::Activation::kGelu;
  BAYPLAN_RETURN_IF_ERROR(check_shape_limits(a, at.where()));
  return model;
}

ordered_json write_architecture(const ModelDescription& model) {
  const Architecture& a = model.architecture;
  ordered_json out = {
      {"family", a.family},
      {"layers", a.layers},
      {"hidden", a.hidden},
      {"heads", a.heads},
      {"kv_heads", a.kv_heads},
      {"head_dim", a.head_dim},
      {"ffn", a.ffn},
      {"vocab", a.vocab},
      {"max_seq", a.max_seq},
      {"tied", a.tied},
      {"norm", a.norm == Architecture::Norm::kRmsNorm ? "rms_norm" : "layer_norm"},
      {"position", a.position == Architecture::Position::kRope ? "rope" : "learned"},
      {"activation", a.activation == Architecture::Activation::kSwiglu ? "swiglu" : "gelu"},
      {"qkv_bias", a.qkv_bias},
      {"attention_out_bias", a.attention_out_bias},
      {"mlp_bias", a.mlp_bias},
      {"qk_norm", a.qk_norm},
      {"norm_epsilon", a.norm_epsilon},
      {"rope_theta", a.rope_theta},
      {"init_std", a.init_std}};
  if (model.attention_window > 0) out["attention_window"] = model.attention_window;
  if (!model.not_executed.empty()) out["not_executed"] = model.not_executed;
  return out;
}

}  // namespace

Result<PlanFile> read_plan(const JsonCursor& at, const HardwareLookup& presets) {
  PlanFile file;
  Plan& plan = file.plan;
  std::string schema, grad_reduce = "step", reshard = "unit", recompute = "none", offload = "none";
  ObjectReader r(at);
  r.required("schema", schema, word({kPlanSchema}));
  r.required("model", plan.model, text());
  r.optional("architecture", file.model,
             [&](const JsonCursor& c) { return read_architecture(c, plan.model); });
  r.required("cluster", plan.cluster, text());
  r.optional("hardware", file.hardware,
             [&](const JsonCursor& c) { return read_cluster(c, presets); });
  r.required("job", plan.job, read_job);
  r.required("mesh", plan.mesh, read_mesh);
  r.optional("chunks_per_rank", plan.chunks_per_rank, count(kMostUnits));
  r.required("schedule", plan.schedule, text());
  r.optional("schedule_table", plan.schedule_table,
             [](const JsonCursor& c) { return read_list<std::string>(c, text()); });
  r.required("stages", plan.stages,
             [](const JsonCursor& c) { return read_list<StagePlan>(c, read_stage); });
  r.required("replicas", plan.replicas,
             [](const JsonCursor& c) { return read_list<ReplicaPlan>(c, read_replica); });
  r.optional("grad_reduce", grad_reduce, word({"step", "micro-batch"}));
  r.optional("reshard", reshard, word({"unit", "chunk", "step"}));
  r.optional("prefetch", plan.prefetch, [](const JsonCursor& c) -> Result<int> {
    BAYPLAN_TRY(n, c.integer(0, kMostPrefetch));
    return static_cast<int>(n);
  });
  r.optional("persistence_threshold", plan.persistence_threshold,
             [](const JsonCursor& c) { return c.bytes(); });
  r.optional("offload", offload, text());
  r.optional("recompute", recompute, word({"none", "selective", "full"}));
  r.optional("recompute_units", plan.recompute_units, [](const JsonCursor& c) {
    return read_list<int>(c, [](const JsonCursor& unit) -> Result<int> {
      BAYPLAN_TRY(n, unit.integer(0, kMostUnits));
      return static_cast<int>(n);
    });
  });
  r.optional("threads_per_rank", plan.threads_per_rank, count(kMostThreads));
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  plan.grad_reduce = grad_reduce == "step" ? GradReduce::kStep : GradReduce::kMicroBatch;
  BAYPLAN_TRY(offloaded, parse_offload(offload, at.where() + "/offload"));
  plan.offload = offloaded;
  plan.recompute = recompute == "none"        ? Recompute::kNone
                   : recompute == "selective" ? Recompute::kSelective
                                              : Recompute::kFull;
  plan.reshard = reshard == "unit"    ? Reshard::kUnit
                 : reshard == "chunk" ? Reshard::kChunk
                                      : Reshard::kStep;
  if (file.hardware) file.hardware->name = plan.cluster;
  return file;
}

Result<PlanFile> read_plan_file(const std::string& path, const HardwareLookup& presets) {
  BAYPLAN_TRY(document, read_json_file(path));
  return read_plan(JsonCursor(document), presets);
}

ordered_json write_job(const TrainingJob& job) {
  return {{"seq", job.seq},
          {"global_batch", job.global_batch},
          {"micro_batch", job.micro_batch},
          {"precision", dtype_name(job.precision.compute)},
          {"grad_dtype", dtype_name(job.precision.gradient)},
          {"optimizer", optimizer_spec(job.optimizer).name},
          {"attention", job.attention == AttentionKind::kFlash ? "flash" : "auto"},
          {"learning_rate", job.learning_rate},
          {"lr_schedule", learning_rate_schedule_name(job.lr_schedule)},
          {"warmup_steps", job.warmup_steps},
          {"decay_steps", job.decay_steps},
          {"min_learning_rate", job.min_learning_rate},
          {"weight_decay", job.weight_decay},
          {"beta1", job.beta1},
          {"beta2", job.beta2},
          {"epsilon", job.epsilon},
          {"momentum", job.momentum},
          {"clip_norm", job.clip_norm},
          {"dropout", job.dropout},
          {"seed", job.seed},
          {"steps", job.steps}};
}

ordered_json write_plan(const PlanFile& file) {
  const Plan& plan = file.plan;
  ordered_json stages = ordered_json::array();
  for (const StagePlan& s : plan.stages) {
    stages.push_back(
        {{"first_unit", s.first_unit}, {"unit_count", s.unit_count}, {"zero", s.zero}});
  }
  ordered_json replicas = ordered_json::array();
  for (const ReplicaPlan& replica : plan.replicas)
    replicas.push_back({{"micro_batches", replica.micro_batches}});
  ordered_json out = {{"schema", kPlanSchema}, {"model", plan.model}, {"cluster", plan.cluster}};
  out["job"] = write_job(plan.job);
  out["mesh"] = {{"pp", plan.mesh.pp},
                 {"dp", plan.mesh.dp},
                 {"cp", plan.mesh.cp},
                 {"tp", plan.mesh.tp},
                 {"ep", plan.mesh.ep}};
  out["chunks_per_rank"] = plan.chunks_per_rank;
  out["schedule"] = plan.schedule;
  if (!plan.schedule_table.empty()) out["schedule_table"] = plan.schedule_table;
  out["stages"] = std::move(stages);
  out["replicas"] = std::move(replicas);
  out["grad_reduce"] = plan.grad_reduce == GradReduce::kStep ? "step" : "micro-batch";
  out["reshard"] = plan.reshard == Reshard::kUnit    ? "unit"
                   : plan.reshard == Reshard::kChunk ? "chunk"
                                                     : "step";
  out["prefetch"] = plan.prefetch;
  if (plan.persistence_threshold.value > 0)
    out["persistence_threshold"] = exact_bytes(plan.persistence_threshold);
  out["offload"] = offload_text(plan.offload);
  out["recompute"] = recompute_name(plan.recompute);
  if (!plan.recompute_units.empty()) out["recompute_units"] = plan.recompute_units;
  out["threads_per_rank"] = plan.threads_per_rank;
  if (file.model) out["architecture"] = write_architecture(*file.model);
  if (file.hardware) out["hardware"] = write_cluster(*file.hardware);
  return out;
}

}  // namespace bayplan
