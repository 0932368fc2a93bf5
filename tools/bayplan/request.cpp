#include "tools/bayplan/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "models/build_model.h"
#include "models/clusters.h"
#include "models/registry.h"
#include "planner/formats/cluster_settings.h"
#include "planner/formats/offload_text.h"
#include "planner/formats/quantity.h"
#include "planner/formats/text_file.h"
#include "planner/partition/graph_view.h"
#include "planner/program/lower.h"
#include "planner/schedule/table.h"
#include "tools/bayplan/calibration_option.h"

namespace bayplan::cli {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 31;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
constexpr std::int64_t kMostThreads = 1024;
constexpr int kMostRecomputeUnit = 100'000;

template <class T, class From>
void set_if(const std::optional<From>& given, T& out) {
  if (given) out = static_cast<T>(*given);
}

/// --seq, the model's longest without it; refuses what the model's attention would make wrong.
Status set_seq(const GivenOptions& given, Subject& subject, TrainingJob& job) {
  BAYPLAN_TRY(seq, given.count("--seq", 1, kMostTokens));
  const std::int64_t longest = longest_seq(subject.model);
  job.seq = seq.value_or(longest);
  const std::int64_t window = subject.model.attention_window;
  if (window > 0 && job.seq > window) {
    return Error{"unsupported",
                 fmt::format("sliding-window attention over {} tokens is not modelled at {} tokens",
                             window, job.seq),
                 "--seq", fmt::format("up to --seq {} the window covers everything", window)};
  }
  const Architecture& a = subject.model.architecture;
  if (a.position == Architecture::Position::kRope && job.seq > a.max_seq) {
    subject.warnings.push_back(fmt::format(
        "{} tokens are more than the {} that the model was made for", job.seq, a.max_seq));
  }
  if (!seq) subject.assumptions.push_back({"seq", std::to_string(job.seq), "default"});
  return {};
}

Status set_precision(const GivenOptions& given, const Cluster& cluster, TrainingJob& job) {
  BAYPLAN_TRY(precision, given.word("--precision", {"fp64", "fp32", "bf16"}));
  job.precision = precision_of(*parse_dtype(precision.value_or("fp32")));
  BAYPLAN_TRY(grad_dtype, given.word("--grad-dtype", {"fp32", "fp64"}));
  if (grad_dtype && parse_dtype(*grad_dtype) != job.precision.gradient) {
    return Error{"unsupported",
                 fmt::format("gradients in {} with --precision {} are not modelled", *grad_dtype,
                             dtype_name(job.precision.compute)),
                 "--grad-dtype", fmt::format("write {}", dtype_name(job.precision.gradient))};
  }
  for (const NodeGroup& group : cluster.groups) {
    if (group.device.peak.contains(job.precision.compute)) continue;
    std::vector<std::string> known;
    for (const auto& [dtype, rate] : group.device.peak) known.emplace_back(dtype_name(dtype));
    return Error{"unsupported-precision",
                 fmt::format("{} has no {} arithmetic", group.device.name,
                             dtype_name(job.precision.compute)),
                 "--precision", fmt::format("it has: {}", fmt::join(known, ", "))};
  }
  return {};
}

/// Rate and schedule; --steps is set already.
Status set_learning_rate(const GivenOptions& given, TrainingJob& job) {
  BAYPLAN_TRY(rate, given.real("--lr", 0.0, 1e6));
  set_if(rate, job.learning_rate);
  BAYPLAN_TRY(schedule, given.word("--lr-schedule", {kLearningRateScheduleNames.begin(),
                                                     kLearningRateScheduleNames.end()}));
  if (schedule) job.lr_schedule = *parse_learning_rate_schedule(*schedule);
  BAYPLAN_TRY(warmup, given.count("--warmup-steps", 0, kMostSteps));
  set_if(warmup, job.warmup_steps);
  BAYPLAN_TRY(decay, given.count("--decay-steps", 0, kMostSteps));
  set_if(decay, job.decay_steps);
  BAYPLAN_TRY(lowest, given.real("--lr-min", 0.0, 1e6));
  set_if(lowest, job.min_learning_rate);
  const Status checked = check_learning_rate(job);
  if (checked) return {};
  Error error = checked.error();
  error.where = error.where == "/warmup_steps"  ? "--warmup-steps"
                : error.where == "/decay_steps" ? "--decay-steps"
                                                : "--lr-min";
  return error;
}

Status set_job(const GivenOptions& given, Subject& subject, TrainingJob& job) {
  BAYPLAN_RETURN_IF_ERROR(set_seq(given, subject, job));
  BAYPLAN_RETURN_IF_ERROR(set_precision(given, subject.cluster, job));
  std::vector<std::string> optimizers;
  for (const OptimizerSpec& spec : kOptimizers) optimizers.emplace_back(spec.name);
  BAYPLAN_TRY(optimizer, given.word("--optimizer", optimizers));
  if (optimizer) job.optimizer = *parse_optimizer(*optimizer);
  BAYPLAN_TRY(attention, given.word("--attention", {"auto", "flash"}));
  if (attention == "flash") job.attention = AttentionKind::kFlash;
  BAYPLAN_TRY(steps, given.count("--steps", 1, kMostSteps));
  set_if(steps, job.steps);
  BAYPLAN_TRY(seed, given.count("--seed", 0, std::numeric_limits<std::int64_t>::max()));
  set_if(seed, job.seed);
  BAYPLAN_TRY(dropout, given.real("--dropout", 0.0, 0.999));
  set_if(dropout, job.dropout);
  BAYPLAN_RETURN_IF_ERROR(set_learning_rate(given, job));
  BAYPLAN_TRY(decay, given.real("--weight-decay", 0.0, 1e6));
  set_if(decay, job.weight_decay);
  if (given.get("--clip") == "off") {
    job.clip_norm = 0.0;
  } else {
    BAYPLAN_TRY(clip, given.real("--clip", std::numeric_limits<double>::min(), 1e12));
    set_if(clip, job.clip_norm);
  }
  return {};
}

/// nullopt: open. `fixed` is the value without the option, nullopt = open.
Result<std::optional<std::int64_t>> decision(const GivenOptions& given, std::string_view name,
                                             std::int64_t least, std::int64_t most,
                                             std::optional<std::int64_t> fixed) {
  if (given.get(name) == "auto") return std::optional<std::int64_t>();
  BAYPLAN_TRY(value, given.count(name, least, most));
  return value ? value : fixed;
}

Status set_table(const GivenOptions& given, const std::string& path, SearchSpace& space,
                 Plan& plan) {
  BAYPLAN_TRY(text, read_text_file(path));
  plan.schedule_table = split_table(text);
  Result<Schedule> schedule = schedule_of_table(plan.schedule_table);
  if (!schedule.ok()) {
    Error error = schedule.error();
    error.where = path + error.where.substr(std::string_view("--schedule").size());
    return error;
  }
  const auto ranks = static_cast<std::int64_t>(schedule->rank_ops.size());
  const auto stages = static_cast<std::int64_t>(schedule->stage_rank.size());
  const auto mismatch = [&](std::string_view option, std::int64_t asked, std::int64_t has) {
    return Error{"schedule-shape",
                 fmt::format("the table has {} pipeline ranks and {} stages", ranks, stages),
                 fmt::format("{} {}", option, asked), fmt::format("write {} {}", option, has)};
  };
  if (ranks < 1 || stages % ranks != 0) {
    return Error{"schedule-shape",
                 fmt::format("the table has {} stages on {} pipeline ranks", stages, ranks), path,
                 "give every rank as many stages on average: pp x vp in all"};
  }
  BAYPLAN_TRY(pp, decision(given, "--pp", 1, kMostDevices, ranks));
  if (pp.value_or(ranks) != ranks) return mismatch("--pp", *pp, ranks);
  if (space.chunks && *space.chunks != stages / ranks)
    return mismatch("--vp", *space.chunks, stages / ranks);
  space.pp = static_cast<int>(ranks);
  space.schedule = "table";
  space.chunks = static_cast<int>(stages / ranks);
  return {};
}

Status refuse_axes(const GivenOptions& given) {
  const std::pair<const char*, const char*> axes[] = {{"--tp", "tensor parallelism"},
                                                      {"--cp", "context parallelism"},
                                                      {"--ep", "expert parallelism"}};
  for (const auto& [name, what] : axes) {
    if (given.get(name) == "auto") continue;
    BAYPLAN_TRY(degree, given.count(name, 1, kMostDevices));
    if (degree.value_or(1) == 1) continue;
    return Error{"unsupported",
                 fmt::format("degree {}: {} is neither modelled nor executed yet", *degree, what),
                 name, fmt::format("write {} 1, or leave it out", name)};
  }
  return {};
}

/// What ZeRO does with gradients and gathered parameters.
Status set_sharding(const GivenOptions& given, SearchSpace& space, Plan& plan) {
  BAYPLAN_TRY(reduce, given.word("--grad-reduce", {"auto", "step", "micro-batch"}));
  if (reduce && reduce != "auto")
    space.grad_reduce = reduce == "step" ? GradReduce::kStep : GradReduce::kMicroBatch;
  BAYPLAN_TRY(reshard, given.word("--reshard-after-forward", {"auto", "yes", "chunk", "no"}));
  if (reshard && reshard != "auto") {
    space.keeps_reshard = true;
    plan.reshard = reshard == "yes"     ? Reshard::kUnit
                   : reshard == "chunk" ? Reshard::kChunk
                                        : Reshard::kStep;
  }
  BAYPLAN_TRY(prefetch, given.count("--prefetch", 0, kMostPrefetch));
  set_if(prefetch, plan.prefetch);
  if (const auto text = given.get("--persistence-threshold")) {
    BAYPLAN_TRY(bytes, parse_bytes(*text, "--persistence-threshold"));
    plan.persistence_threshold = bytes;
  }
  return {};
}

/// --schedule and --vp. A table brings its pipeline ranks and its stages.
Status set_schedule(const GivenOptions& given, bool fixed, SearchSpace& space, Plan& plan) {
  BAYPLAN_TRY(chunks, decision(given, "--vp", 1, kMostChunks, std::nullopt));
  if (chunks) space.chunks = static_cast<int>(*chunks);
  const auto name = given.get("--schedule");
  if (name && name->ends_with(".csv")) return set_table(given, *name, space, plan);
  if (name != "auto") {
    std::vector<std::string> known;
    for (const ScheduleSpec& spec : schedules()) known.emplace_back(spec.name);
    BAYPLAN_TRY(schedule, given.word("--schedule", known));
    space.schedule = schedule;
    if (!schedule && fixed) space.schedule = space.chunks.value_or(1) > 1 ? "interleaved" : "1f1b";
  }
  if (fixed && !space.chunks && given.get("--vp") != "auto" && space.schedule)
    space.chunks = find_schedule(*space.schedule)->min_chunks;
  return {};
}

/// units=1,4-6: full recomputation of these.
Result<std::vector<int>> unit_list(const std::string& text) {
  std::vector<int> units;
  std::string_view rest = text;
  const auto bad = [&] {
    return Error{"usage", fmt::format("'{}' is no list of units", text.substr(0, 60)),
                 "--recompute", "write ascending numbers and ranges, as in units=1,4-6"};
  };
  for (;;) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::size_t dash = item.find('-');
    const auto number = [&](std::string_view digits) {
      int value = -1;
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value);
      return error == std::errc() && end == digits.data() + digits.size() ? value : -1;
    };
    const int first = number(item.substr(0, dash));
    const int last = dash == std::string_view::npos ? first : number(item.substr(dash + 1));
    if (first < 0 || last < first || last > kMostRecomputeUnit) return bad();
    for (int u = first; u <= last; ++u) units.push_back(u);
    if (item.size() == rest.size()) return units;
    rest.remove_prefix(item.size() + 1);
  }
}

Status set_recompute(const GivenOptions& given, Plan& plan) {
  const auto text = given.get("--recompute");
  constexpr std::string_view kUnits = "units=";
  if (text && text->starts_with(kUnits)) {
    BAYPLAN_TRY(units, unit_list(text->substr(kUnits.size())));
    plan.recompute = Recompute::kFull;
    plan.recompute_units = units;
    return {};
  }
  BAYPLAN_TRY(word, given.word("--recompute", {"none", "selective", "selective-op", "full"}));
  if (word && word->starts_with("selective")) plan.recompute = Recompute::kSelective;
  if (word == "full") plan.recompute = Recompute::kFull;
  return {};
}

Status set_layout(const GivenOptions& given, Defaults defaults, Request& request) {
  const bool fixed = defaults == Defaults::kFixed;
  const auto unless_searched = [&](std::int64_t value) {
    return fixed ? std::optional<std::int64_t>(value) : std::nullopt;
  };
  BAYPLAN_RETURN_IF_ERROR(refuse_axes(given));
  const int devices = request.subject.cluster.device_count();
  SearchSpace& space = request.space;
  Plan& plan = request.base;

  BAYPLAN_RETURN_IF_ERROR(set_schedule(given, fixed, space, plan));
  BAYPLAN_RETURN_IF_ERROR(set_sharding(given, space, plan));
  BAYPLAN_RETURN_IF_ERROR(set_recompute(given, plan));
  if (const auto text = given.get("--offload")) {
    BAYPLAN_TRY(offload, parse_offload(*text, "--offload"));
    plan.offload = offload;
  }
  BAYPLAN_TRY(pp, decision(given, "--pp", 1, kMostDevices,
                           space.pp ? std::optional<std::int64_t>(*space.pp) : unless_searched(1)));
  if (pp) space.pp = static_cast<int>(*pp);
  // Data parallelism takes the devices that the pipeline leaves.
  const bool divides = space.pp && devices % *space.pp == 0;
  BAYPLAN_TRY(dp, decision(given, "--dp", 1, kMostDevices,
                           divides && fixed ? std::optional<std::int64_t>(devices / *space.pp)
                                            : std::nullopt));
  if (dp) space.dp = static_cast<int>(*dp);
  if (space.pp &&
      (space.dp ? std::int64_t{*space.pp} * *space.dp != devices : devices % *space.pp != 0)) {
    return Error{"world-size",
                 fmt::format("pp {}{} does not give the cluster's {} devices", *space.pp,
                             space.dp ? fmt::format(" x dp {}", *space.dp) : "", devices),
                 "--pp, --dp", "pp x dp must equal the device count"};
  }
  BAYPLAN_TRY(micro_batch, decision(given, "--micro-batch", 1, kMostSamples, unless_searched(1)));
  space.micro_batch = micro_batch;
  BAYPLAN_TRY(zero, decision(given, "--zero", 0, 3, unless_searched(0)));
  if (zero) {
    space.zero = static_cast<int>(*zero);
  }
  BAYPLAN_TRY(batch, given.count("--global-batch", 1, kMostSamples));
  // One sample per replica; with dp open, per replica of the layout that has the most.
  const std::int64_t most_replicas = space.dp   ? *space.dp
                                     : space.pp ? devices / *space.pp
                                                : devices;
  plan.job.global_batch = batch.value_or(most_replicas);
  if (!batch) {
    request.subject.assumptions.push_back(
        {"global_batch", std::to_string(plan.job.global_batch), "default"});
  }
  const NodeGroup& node = request.subject.cluster.groups.front();
  BAYPLAN_TRY(threads, given.count("--threads-per-rank", 1, kMostThreads));
  plan.threads_per_rank = static_cast<int>(
      threads.value_or(std::max(1, node.cores / std::max(1, node.devices_per_node))));
  return {};
}

Result<Cluster> cluster_from(const GivenOptions& given, const std::string& text) {
  BAYPLAN_TRY(cluster, resolve_cluster(text));
  return apply_settings(cluster, given.settings);
}

/// The calibration that applies, and what the hardware's numbers rest on.
Status describe_rates(const GivenOptions& given, Subject& subject) {
  BAYPLAN_RETURN_IF_ERROR(apply_calibration_option(given.get("--calibration"), subject));
  const DeviceSpec& device = subject.cluster.groups.front().device;
  if (device.device_class == DeviceClass::kGpu) {
    subject.assumptions.push_back(
        {"gemm_efficiency", fmt::format("{}", device.gemm_efficiency), "specification"});
    subject.assumptions.push_back(
        {"attention_efficiency", fmt::format("{}", device.attention_efficiency), "specification"});
    subject.assumptions.push_back(
        {"memory_efficiency", fmt::format("{}", device.memory_efficiency), "default"});
  }
  return {};
}

}  // namespace

Result<Request> make_request(const GivenOptions& given, Defaults defaults) {
  BAYPLAN_RETURN_IF_ERROR(check_restricted(given));
  Request request;
  Subject& subject = request.subject;
  BAYPLAN_TRY(seq, given.count("--seq", 1, kMostTokens));
  BAYPLAN_TRY(model, resolve_model(given.model, seq));
  subject.model = model;
  BAYPLAN_TRY(cluster, cluster_from(given, given.cluster));
  subject.cluster = cluster;
  BAYPLAN_RETURN_IF_ERROR(describe_rates(given, subject));
  request.base.model = given.model;
  request.base.cluster = given.cluster;
  BAYPLAN_RETURN_IF_ERROR(set_job(given, subject, request.base.job));
  subject.graph = build_model(model.architecture, request.base.job.dropout > 0.0);
  BAYPLAN_RETURN_IF_ERROR(set_layout(given, defaults, request));
  return request;
}

Result<LoadedPlan> load_plan(const std::string& path, const std::string& cluster_text,
                             const GivenOptions& given) {
  BAYPLAN_TRY(file, read_plan_file(path, find_hardware_preset));
  LoadedPlan loaded;
  loaded.plan = file.plan;
  Subject& subject = loaded.subject;

  // A plain shape takes its longest sequence from --seq, which the file wrote down as max_seq.
  auto named = resolve_model(file.plan.model,
                             file.model ? file.model->architecture.max_seq : file.plan.job.seq);
  if (!named && !file.model) return named.error();
  subject.model = file.model ? *file.model : *named;
  if (named && file.model && !(*named == *file.model)) {
    return Error{"plan-for-another-model",
                 fmt::format("the plan was made for a '{}' of another shape", file.plan.model),
                 path + ":/architecture",
                 "plan again, or remove 'architecture' to use the model as it is now"};
  }
  if (!cluster_text.empty()) {
    BAYPLAN_TRY(cluster, cluster_from(given, cluster_text));
    subject.cluster = cluster;
    loaded.plan.cluster = cluster_text;
  } else if (file.hardware) {
    BAYPLAN_TRY(cluster, apply_settings(*file.hardware, given.settings));
    subject.cluster = cluster;
  } else {
    BAYPLAN_TRY(cluster, cluster_from(given, file.plan.cluster));
    subject.cluster = cluster;
  }
  BAYPLAN_RETURN_IF_ERROR(describe_rates(given, subject));
  subject.graph = build_model(subject.model.architecture, loaded.plan.job.dropout > 0.0);
  BAYPLAN_RETURN_IF_ERROR(check_stage_boundaries(subject.graph, loaded.plan.stages));
  auto program = lower(loaded.plan, subject.graph, subject.cluster);
  if (!program) {
    Error error = program.error();
    // lower() names fields of "plan"; here that is a file.
    if (error.where.starts_with("plan/")) error.where = path + ":" + error.where.substr(4);
    return error;
  }
  loaded.program = std::move(*program);
  return loaded;
}

}  // namespace bayplan::cli
