#include "tools/bayplan/report.h"

#include <fmt/format.h>

#include "planner/formats/offload_text.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "planner/formats/cluster_json.h"
#include "planner/formats/quantity.h"

namespace bayplan::cli {
namespace {

using nlohmann::ordered_json;

/// Terms that scripts find in every report, in this order; 0 where nothing counts towards them.
constexpr const char* kTerms[] = {
    "parameters",    "gradients",           "master",        "moments",   "activations",
    "logits",        "recompute",           "communication", "workspace", "context",
    "fragmentation", "gathered_parameters", "unit_gradients"};

std::string_view moment_name(ProgramKind kind) {
  switch (kind) {
    case ProgramKind::kLoad:
      return "load";
    case ProgramKind::kTrainStep:
    case ProgramKind::kEvalStep:
      return "steady";
    case ProgramKind::kSave:
      return "save";
  }
  return "steady";
}

/// Price and power of all devices, while the job runs; 0 = unknown.
struct Running {
  double usd_per_hour = 0.0;
  double watts = 0.0;
};
Running running_cost(const Cluster& cluster) {
  Running total;
  for (const NodeGroup& g : cluster.groups) {
    const double devices = static_cast<double>(g.nodes) * g.devices_per_node;
    total.usd_per_hour += devices * g.device.price_per_hour;
    total.watts += devices * g.device.power_watts;
  }
  return total;
}

ordered_json unless_zero(double value) {
  return value > 0.0 ? ordered_json(value) : ordered_json(nullptr);
}

}  // namespace

ordered_json model_json(const Subject& subject, const std::string& name) {
  const std::int64_t parameters = parameter_count(subject.graph);
  // Dense models train and use all of their parameters.
  return {{"name", name},
          {"parameters", parameters},
          {"active_parameters", parameters},
          {"trainable_parameters", parameters}};
}

ordered_json layout_json(const Plan& plan) {
  ordered_json units = ordered_json::array();
  for (const StagePlan& stage : plan.stages) units.push_back(stage.unit_count);
  return {{"pp", plan.mesh.pp},
          {"vp", plan.chunks_per_rank},
          {"dp", plan.mesh.dp},
          {"cp", plan.mesh.cp},
          {"tp", plan.mesh.tp},
          {"ep", plan.mesh.ep},
          {"zero", plan.stages.empty() ? 0 : plan.stages.front().zero},
          {"schedule", plan.schedule},
          {"micro_batch", plan.job.micro_batch},
          {"micro_batches", plan.replicas.empty() ? 0 : plan.replicas.front().micro_batches},
          {"units_per_stage", units},
          {"recompute", recompute_name(plan.recompute)},
          {"offload", offload_text(plan.offload)},
          {"grad_reduce", plan.grad_reduce == GradReduce::kStep ? "step" : "micro-batch"},
          {"threads_per_rank", plan.threads_per_rank}};
}

ordered_json cluster_json(const Cluster& cluster) {
  ordered_json out = write_cluster(cluster);
  out.erase("schema");
  out["devices"] = cluster.device_count();
  return out;
}

ordered_json memory_json(const RankMemoryNeed& need) {
  ordered_json terms = ordered_json::object();
  for (const char* name : kTerms) terms[name] = 0;
  for (const MemoryTerm& term : need.terms) terms[term.name] = term.bytes.value;
  return {{"rank", need.rank},
          {"stage", need.stage},
          {"count", need.count},
          {"moment", moment_name(need.moment)},
          {"allocated_bytes", need.allocated.value},
          // The arena is one allocation, made once: nothing is reserved beside it.
          {"reserved_bytes", need.allocated.value},
          {"device_bytes", need.device.value},
          {"capacity_bytes", need.capacity.value},
          {"terms", terms}};
}

ordered_json host_json(const std::vector<RankMemoryNeed>& needs, const Program& program,
                       const Cluster& cluster) {
  std::map<int, std::int64_t> per_node;
  for (int rank = 0; rank < program.world_size(); ++rank) {
    const auto c = static_cast<std::size_t>(program.rank_class[static_cast<std::size_t>(rank)]);
    per_node[place_of(cluster, rank).node] += needs[c].host.value;
  }
  std::int64_t most = 0;
  for (const auto& [node, bytes] : per_node) most = std::max(most, bytes);
  return {{"per_node_bytes", most}, {"pinned_bytes", 0}, {"peak_moment", "steady"}};
}

ordered_json step_json(const sim::SimulationResult& r, const Cluster& cluster) {
  const Running running = running_cost(cluster);
  const double seconds = r.step_time.mid.value;
  return {{"seconds",
           {{"low", r.step_time.low.value}, {"mid", seconds}, {"high", r.step_time.high.value}}},
          {"source", provenance_name(r.provenance)},
          {"tokens_per_second", r.tokens_per_second},
          {"mfu", r.mfu},
          {"hfu", r.hfu},
          {"breakdown",
           {{"compute", r.breakdown.compute.value},
            {"exposed_communication", r.breakdown.exposed_communication.value},
            {"bubble", r.breakdown.bubble.value},
            {"optimizer", r.breakdown.optimizer.value},
            {"offload", r.breakdown.offload.value},
            {"launch", r.breakdown.launch.value}}},
          {"usd", unless_zero(running.usd_per_hour / 3600.0 * seconds)},
          // At the boards' full power: an upper bound.
          {"joules", unless_zero(running.watts * seconds)}};
}

ordered_json assumptions_json(const std::vector<Assumption>& assumptions) {
  ordered_json out = ordered_json::array();
  for (const Assumption& a : assumptions) {
    out.push_back({{"what", a.what}, {"value", a.value}, {"source", a.source}});
  }
  return out;
}

std::string fingerprint_text(std::uint64_t fingerprint) {
  return fmt::format("{:016x}", fingerprint);
}

std::string layout_text(const Plan& plan) {
  std::string savings;
  if (plan.recompute != Recompute::kNone)
    savings += fmt::format(", recompute {}", recompute_name(plan.recompute));
  if (plan.offload != Offload{}) savings += ", offload " + offload_text(plan.offload);
  const std::string chunks =
      plan.chunks_per_rank > 1 ? fmt::format(" x vp {}", plan.chunks_per_rank) : "";
  return fmt::format("pp {}{} x dp {}, micro-batch {} x {}, ZeRO {}, {}{}, {}, {} tokens",
                     plan.mesh.pp, chunks, plan.mesh.dp, plan.job.micro_batch,
                     plan.replicas.empty() ? 0 : plan.replicas.front().micro_batches,
                     plan.stages.empty() ? 0 : plan.stages.front().zero, plan.schedule, savings,
                     dtype_name(plan.job.precision.compute), plan.job.seq);
}

std::string memory_table(const std::vector<RankMemoryNeed>& needs) {
  std::string out = fmt::format("{:>5} {:>6} {:>6} {:>12} {:>12}  {}\n", "rank", "stage", "ranks",
                                "peak", "capacity", "largest terms");
  for (const RankMemoryNeed& need : needs) {
    std::string terms;
    for (std::size_t i = 0; i < need.terms.size() && i < 4; ++i) {
      if (need.terms[i].bytes.value <= 0) continue;
      terms += fmt::format("{}{} {}", terms.empty() ? "" : ", ", need.terms[i].name,
                           short_bytes(need.terms[i].bytes));
    }
    out += fmt::format("{:>5} {:>6} {:>6} {:>12} {:>12}  {}\n", need.rank, need.stage, need.count,
                       short_bytes(need.device), short_bytes(need.capacity), terms);
  }
  return out;
}

std::string notes_text(const Subject& subject) {
  std::string out;
  for (const std::string& warning : subject.warnings) out += fmt::format("warning: {}\n", warning);
  for (const Assumption& a : subject.assumptions)
    out += fmt::format("assumed: {} = {} ({})\n", a.what, a.value, a.source);
  return out;
}

void print_json(const ordered_json& object) {
  fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace bayplan::cli
