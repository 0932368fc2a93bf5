#include "planner/program/lower.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "planner/core/check.h"
#include "planner/program/fingerprint.h"
#include "planner/program/lowering.h"
#include "planner/schedule/table.h"

namespace bayplan {
namespace {

Error plan_error(std::string code, std::string field, std::string message, std::string hint) {
  return {std::move(code), std::move(message), "plan" + std::move(field), std::move(hint)};
}

std::string number(std::int64_t n) { return std::to_string(n); }

Status check_batch(const Plan& plan) {
  const TrainingJob& job = plan.job;
  for (const auto& [name, value] : {std::pair<const char*, std::int64_t>{"/job/seq", job.seq},
                                    {"/job/global_batch", job.global_batch},
                                    {"/job/micro_batch", job.micro_batch}}) {
    if (value < 1)
      return plan_error("bad-size", name, "must be at least 1, is " + number(value),
                        "use a positive size");
  }
  const std::int64_t per_round = job.micro_batch * plan.mesh.dp;
  if (job.global_batch % per_round != 0) {
    return plan_error("batch-not-divisible", "/job/global_batch",
                      "global batch " + number(job.global_batch) +
                          " is not a multiple of micro-batch " + number(job.micro_batch) +
                          " x dp " + number(plan.mesh.dp) + " = " + number(per_round),
                      "use a global batch of " + number(round_up(job.global_batch, per_round)) +
                          " or another --micro-batch");
  }
  if (static_cast<int>(plan.replicas.size()) != plan.mesh.dp) {
    return plan_error("replica-count", "/replicas",
                      number(static_cast<std::int64_t>(plan.replicas.size())) + " entries for dp " +
                          number(plan.mesh.dp),
                      "give one entry per data-parallel replica");
  }
  const std::int64_t micro_batches = job.global_batch / per_round;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    if (plan.replicas[r].micro_batches != micro_batches) {
      return plan_error(
          "replica-batch", "/replicas/" + number(static_cast<std::int64_t>(r)) + "/micro_batches",
          "replica has " + number(plan.replicas[r].micro_batches) +
              " micro-batches, the batch needs " + number(micro_batches),
          "replicas of unequal batch are not lowered yet; give each " + number(micro_batches));
    }
  }
  return {};
}

Status check_stages(const Plan& plan, const ModelGraph& graph) {
  const std::int64_t stages = static_cast<std::int64_t>(plan.mesh.pp) * plan.chunks_per_rank;
  const auto units = static_cast<std::int64_t>(graph.units.size());
  if (stages > units) {
    return plan_error(
        "too-many-stages", "/mesh/pp",
        number(stages) + " pipeline stages for " + number(units) + " units",
        "use --pp " + number(units) + " or less; a unit is an embedding, a block or a head");
  }
  if (static_cast<std::int64_t>(plan.stages.size()) != stages) {
    return plan_error("stage-count", "/stages",
                      number(static_cast<std::int64_t>(plan.stages.size())) + " entries for " +
                          number(stages) + " pipeline stages",
                      "give one entry per stage (pp x vp)");
  }
  std::int64_t next = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    const std::string at = "/stages/" + number(static_cast<std::int64_t>(s));
    if (stage.unit_count < 1) {
      return plan_error("empty-stage", at + "/unit_count", "stage has no unit",
                        "give every stage at least one unit");
    }
    if (stage.first_unit != next) {
      return plan_error("stage-gap", at + "/first_unit",
                        "stage starts at unit " + number(stage.first_unit) +
                            ", the previous one ends at " + number(next),
                        "stages must cover the units in order, without gaps");
    }
    next += stage.unit_count;
    if (stage.zero < 0 || stage.zero > 3) {
      return plan_error("unsupported-zero", at + "/zero",
                        "there is no ZeRO stage " + number(stage.zero), "use 0, 1, 2 or 3");
    }
  }
  if (next != units) {
    return plan_error("plan-for-another-model", "/stages",
                      "the stages cover " + number(next) + " units, the model has " + number(units),
                      "make the plan again for this model");
  }
  return {};
}

Status check_mesh(const Plan& plan, const Cluster& cluster) {
  const Mesh& mesh = plan.mesh;
  for (const auto& [name, degree] : {std::pair<const char*, int>{"/mesh/pp", mesh.pp},
                                     {"/mesh/dp", mesh.dp},
                                     {"/mesh/cp", mesh.cp},
                                     {"/mesh/tp", mesh.tp},
                                     {"/mesh/ep", mesh.ep}}) {
    if (degree < 1)
      return plan_error("bad-degree", name, "must be at least 1, is " + number(degree),
                        "use 1 or more");
  }
  for (const auto& [name, degree, what] :
       {std::tuple<const char*, int, const char*>{"/mesh/cp", mesh.cp, "context parallelism"},
        {"/mesh/tp", mesh.tp, "tensor parallelism"},
        {"/mesh/ep", mesh.ep, "expert parallelism"}}) {
    if (degree > 1) {
      return plan_error(
          "unsupported-axis", name,
          std::string(what) + " cannot be lowered yet (degree " + number(degree) + ")", "use 1");
    }
  }
  const std::int64_t world = static_cast<std::int64_t>(mesh.pp) * mesh.dp;
  if (world != cluster.device_count()) {
    return plan_error("world-size", "/mesh",
                      "pp " + number(mesh.pp) + " x dp " + number(mesh.dp) + " = " + number(world) +
                          " ranks, the cluster has " + number(cluster.device_count()) + " devices",
                      "change --pp or --dp, or use a cluster of " + number(world) + " devices");
  }
  if (plan.chunks_per_rank < 1 || plan.chunks_per_rank > kMostChunks) {
    return plan_error(
        "unsupported-chunks", "/chunks_per_rank",
        "must be 1 to " + number(kMostChunks) + ", is " + number(plan.chunks_per_rank),
        "use the stages that one pipeline rank holds");
  }
  if (plan.threads_per_rank < 1 || plan.threads_per_rank > 1024) {
    return plan_error("bad-threads", "/threads_per_rank",
                      "must be 1 to 1024, is " + number(plan.threads_per_rank),
                      "use the cores of a node divided by its ranks");
  }
  return {};
}

Status check_job(const Plan& plan, const ModelGraph& graph) {
  const TrainingJob& job = plan.job;
  const Architecture& a = graph.architecture;
  if (a.position == Architecture::Position::kLearned && job.seq > a.max_seq) {
    return plan_error("sequence-too-long", "/job/seq",
                      "sequence of " + number(job.seq) + " tokens, the model has " +
                          number(a.max_seq) + " positions",
                      "use --seq " + number(a.max_seq) + " or less");
  }
  if (!(job.dropout >= 0.0 && job.dropout < 1.0)) {
    return plan_error("bad-dropout", "/job/dropout", "must be in [0, 1)", "use 0 for none");
  }
  for (const auto& [name, value] :
       {std::pair<const char*, double>{"/job/learning_rate", job.learning_rate},
        {"/job/weight_decay", job.weight_decay},
        {"/job/momentum", job.momentum},
        {"/job/clip_norm", job.clip_norm}}) {
    if (!(value >= 0.0 && std::isfinite(value))) {
      return plan_error("bad-number", name, "must be finite and not negative",
                        "see `bayplan run --help`");
    }
  }
  if (Status rate = check_learning_rate(job); !rate) {
    Error error = rate.error();
    error.where = "plan/job" + error.where;
    return error;
  }
  if (job.precision.compute == DType::kFp16) {
    return plan_error("unsupported-precision", "/job/precision", "fp16 cannot be lowered yet",
                      "use fp32, bf16 or fp64");
  }
  if (job.precision.gradient != precision_of(job.precision.compute).gradient) {
    return plan_error("unsupported-grad-dtype", "/job/grad_dtype",
                      "only the recipe's own gradient type is lowered", "leave it out");
  }
  if (plan.prefetch < 0 || plan.prefetch > kMostPrefetch) {
    return plan_error("bad-prefetch", "/prefetch",
                      "must be 0 to " + number(kMostPrefetch) + ", is " + number(plan.prefetch),
                      "1 gathers the next unit while one computes");
  }
  return {};
}

Status check_offload(const Plan& plan) {
  const OptimizerSpec& optimizer = optimizer_spec(plan.job.optimizer);
  if (plan.offload.optimizer && !plan.job.precision.has_master && !optimizer.moment1 &&
      !optimizer.moment2) {
    return plan_error("nothing-to-offload", "/offload",
                      std::string(optimizer.name) + " in " +
                          std::string(dtype_name(plan.job.precision.compute)) +
                          " keeps neither moments nor master weights",
                      "leave optimizer out of --offload");
  }
  return {};
}

Status check_recompute(const Plan& plan, const ModelGraph& graph) {
  if (plan.recompute == Recompute::kNone && !plan.recompute_units.empty()) {
    return plan_error("bad-recompute", "/recompute_units", "units are named, recompute is none",
                      "use recompute full or selective, or name no units");
  }
  int last = -1;
  for (std::size_t i = 0; i < plan.recompute_units.size(); ++i) {
    const int unit = plan.recompute_units[i];
    const std::string at = "/recompute_units/" + number(static_cast<std::int64_t>(i));
    if (unit <= last || static_cast<std::size_t>(unit) >= graph.units.size()) {
      return plan_error("bad-recompute", at, "unit " + number(unit) + " is not next",
                        "name units below " +
                            number(static_cast<std::int64_t>(graph.units.size())) +
                            " in ascending order");
    }
    if (graph.class_of(UnitId(static_cast<std::size_t>(unit))).kind != UnitKind::kBlock) {
      return plan_error("bad-recompute", at,
                        "unit " + number(unit) +
                            " is no block: it saves nothing that could be "
                            "computed again before its backward",
                        "name blocks");
    }
    last = unit;
  }
  return {};
}

/// What the passes assume of a graph: one boundary output per unit, read by one unit.
Status check_graph(const ModelGraph& graph) {
  std::vector<int> readers(graph.units.size(), 0);
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    for (const BoundarySource& s : graph.units[u].sources) {
      if (++readers[s.unit.index()] > 1 || s.output != 0) {
        return Error{"unsupported-graph",
                     "unit " + graph.units[s.unit.index()].name + " is read by several units",
                     "model", "only chains of units are lowered so far"};
      }
    }
    if (graph.class_of(UnitId(u)).boundary_outputs.size() > 1) {
      return Error{"unsupported-graph", "unit " + graph.units[u].name + " has several outputs",
                   "model", "only chains of units are lowered so far"};
    }
  }
  return {};
}

/// A memory limit for arithmetic: no buffer and no arena may pass 2^60 bytes.
Status check_magnitude(const Plan& plan, const ModelGraph& graph) {
  const Architecture& a = graph.architecture;
  const double tokens =
      static_cast<double>(plan.job.micro_batch) * static_cast<double>(plan.job.seq);
  const double widest =
      static_cast<double>(std::max({a.hidden, a.ffn * 2, a.vocab, a.heads * a.head_dim * 3}));
  const double micro_batches = static_cast<double>(plan.job.global_batch) /
                               static_cast<double>(plan.job.micro_batch * plan.mesh.dp);
  if (tokens * widest * 64.0 * static_cast<double>(a.layers) > 1e18 ||
      micro_batches * static_cast<double>(a.layers) > 5e6) {
    return plan_error("too-large", "/job",
                      "the job's sizes overflow: " + number(plan.job.micro_batch) + " x " +
                          number(plan.job.seq) + " tokens per micro-batch, global batch " +
                          number(plan.job.global_batch),
                      "check --seq, --micro-batch and --global-batch");
  }
  return {};
}

}  // namespace

Status check_plan(const Plan& plan, const ModelGraph& graph, const Cluster& cluster) {
  BAYPLAN_RETURN_IF_ERROR(check_mesh(plan, cluster));
  BAYPLAN_RETURN_IF_ERROR(check_batch(plan));
  BAYPLAN_RETURN_IF_ERROR(check_stages(plan, graph));
  BAYPLAN_RETURN_IF_ERROR(check_job(plan, graph));
  BAYPLAN_RETURN_IF_ERROR(check_offload(plan));
  BAYPLAN_RETURN_IF_ERROR(check_recompute(plan, graph));
  BAYPLAN_RETURN_IF_ERROR(check_graph(graph));
  return check_magnitude(plan, graph);
}

namespace {

constexpr const char* kTableName = "table";

bool recomputed(const Plan& plan, const ModelGraph& graph, std::size_t unit) {
  if (plan.recompute == Recompute::kNone) return false;
  if (plan.recompute_units.empty()) return graph.class_of(UnitId(unit)).kind == UnitKind::kBlock;
  return std::binary_search(plan.recompute_units.begin(), plan.recompute_units.end(),
                            static_cast<int>(unit));
}

/// One layout per unit class and way of recomputing that some unit has.
void lay_out_units(Lowering& lowering, const std::vector<std::vector<TensorShape>>& shapes) {
  const Plan& plan = lowering.plan;
  Program& program = lowering.program;
  std::vector<std::array<std::int32_t, kRecomputeCount>> known(program.graph.classes.size());
  for (auto& of_class : known) of_class.fill(-1);
  for (std::size_t u = 0; u < program.units.size(); ++u) {
    const auto k = static_cast<std::size_t>(program.units[u].unit_class);
    const Recompute recompute =
        recomputed(plan, program.graph, u) ? plan.recompute : Recompute::kNone;
    std::int32_t& layout = known[k][static_cast<std::size_t>(recompute)];
    if (layout < 0) {
      layout = static_cast<std::int32_t>(program.layouts.size());
      program.layouts.push_back(lay_out_unit(program.graph.classes[k], shapes[k],
                                             plan.job.precision, plan.threads_per_rank, recompute));
      program.layouts.back().unit_class = program.units[u].unit_class;
    }
    program.units[u].layout = layout;
  }
}

Result<Schedule> schedule_of(const Plan& plan, std::span<const ScheduleSpec> known) {
  const auto micro_batches = static_cast<int>(plan.replicas.front().micro_batches);
  if (plan.schedule != kTableName) {
    if (!plan.schedule_table.empty()) {
      return plan_error("unused-table", "/schedule_table",
                        "schedule " + plan.schedule + " has no table",
                        "remove it, or use schedule \"table\"");
    }
    return make_schedule(plan.schedule, {plan.mesh.pp, plan.chunks_per_rank, micro_batches}, known);
  }
  BAYPLAN_TRY(schedule, schedule_of_table(plan.schedule_table));
  if (schedule.rank_ops.size() != static_cast<std::size_t>(plan.mesh.pp) ||
      schedule.stage_rank.size() != plan.stages.size()) {
    return plan_error(
        "schedule-shape", "/schedule_table",
        "the table has " + number(static_cast<std::int64_t>(schedule.rank_ops.size())) +
            " ranks and " + number(static_cast<std::int64_t>(schedule.stage_rank.size())) +
            " stages, the plan " + number(plan.mesh.pp) + " and " +
            number(static_cast<std::int64_t>(plan.stages.size())),
        "one line per pipeline rank, and pp x chunks_per_rank stages");
  }
  BAYPLAN_RETURN_IF_ERROR(check_schedule(schedule, micro_batches));
  return schedule;
}

/// Forward multiply-adds of every unit for one sample: what stages are balanced by.
std::vector<double> unit_weights(const ModelGraph& graph) {
  const BatchShape batch{1, std::max<std::int64_t>(1, graph.architecture.max_seq)};
  const auto shapes = infer_class_shapes(graph, batch);
  const Precision precision;
  std::vector<double> of_class;
  for (std::size_t k = 0; k < graph.classes.size(); ++k) {
    double flops = 0.0;
    for (const Operator& op : graph.classes[k].operators) {
      auto pick = [&](const std::vector<std::int32_t>& tensors) {
        std::vector<TensorShape> result;
        for (std::int32_t t : tensors) result.push_back(shapes[k][static_cast<std::size_t>(t)]);
        return result;
      };
      const auto inputs = pick(op.inputs);
      const auto outputs = pick(op.outputs);
      const auto statistics = pick(op.statistics);
      flops += operator_spec(op.kind)
                   .work(op, {inputs, outputs, statistics}, Phase::kForward, precision)
                   .flops.value;
    }
    of_class.push_back(flops);
  }
  std::vector<double> result;
  for (const Unit& u : graph.units)
    result.push_back(of_class[static_cast<std::size_t>(u.unit_class)]);
  return result;
}

}  // namespace

std::vector<StagePlan> even_stages(const ModelGraph& graph, int stages, int zero) {
  const std::vector<double> weight = unit_weights(graph);
  const auto units = static_cast<int>(weight.size());
  double total = 0.0;
  for (double w : weight) total += w;
  std::vector<StagePlan> result;
  int next = 0;
  double done = 0.0;
  for (int s = 0; s < stages; ++s) {
    StagePlan stage{next, 0, zero};
    const double goal = total * (s + 1) / stages;
    const int left_for_others = stages - 1 - s;
    while (next < units - left_for_others) {
      const double w = weight[static_cast<std::size_t>(next)];
      const bool must = stage.unit_count == 0 || s == stages - 1;
      if (!must && done + w / 2 > goal) break;
      done += w;
      ++next;
      ++stage.unit_count;
    }
    result.push_back(stage);
  }
  return result;
}

Result<Program> lower(const Plan& plan, const ModelGraph& graph, const Cluster& cluster,
                      std::span<const ScheduleSpec> known_schedules) {
  BAYPLAN_RETURN_IF_ERROR(check_plan(plan, graph, cluster));
  BAYPLAN_TRY(schedule, schedule_of(plan, known_schedules));

  Lowering lowering{plan, cluster, {}, {}, {}, {}, {}, {}, 1};
  lowering.program.graph = graph;
  const BatchShape batch{plan.job.micro_batch, plan.job.seq};
  const auto shapes = infer_class_shapes(graph, batch);
  pass_mesh(lowering, schedule);
  lay_out_units(lowering, shapes);
  pass_order(lowering, schedule);
  pass_parameters(lowering);
  for (ClassDraft& c : lowering.classes) {
    pass_state(lowering, c);
    pass_compute(lowering, c);
    pass_gather(lowering, c);
    pass_update(lowering, c);
    pass_checkpoint(lowering, c);
    pass_release(lowering, c);
    pass_memory(lowering, c);
  }

  // Ranks of one pipeline coordinate share a class as long as they sit on the same hardware.
  Program& program = lowering.program;
  std::vector<std::pair<int, int>> keys;  // (pipeline coordinate, node group)
  for (int rank = 0; rank < program.mesh.world_size(); ++rank) {
    const std::pair<int, int> key{program.mesh.coordinate(rank).pp(),
                                  place_of(cluster, rank).group};
    const auto known = std::find(keys.begin(), keys.end(), key);
    program.rank_class.push_back(static_cast<std::int32_t>(known - keys.begin()));
    if (known != keys.end()) continue;
    keys.push_back(key);
    RankClass& drafted = lowering.classes[static_cast<std::size_t>(key.first)].result;
    program.classes.push_back(cluster.groups.size() == 1 ? std::move(drafted) : drafted);
  }
  program.fingerprint = fingerprint(program);
  return std::move(program);
}

}  // namespace bayplan
