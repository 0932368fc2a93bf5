#include "tools/bayplan/fixes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "models/build_model.h"
#include "models/clusters.h"
#include "planner/formats/cluster_grammar.h"
#include "planner/formats/cluster_settings.h"
#include "planner/formats/offload_text.h"
#include "tools/bayplan/score.h"

namespace bayplan::cli {
namespace {

/// What costs least first: no change of the result, a lossy one, more hardware, another model.
int cost_rank(const Fix& fix) {
  if (fix.kind == "devices") return 2;
  if (fix.exactness == "exact") return 0;
  return fix.exactness == "lossy" ? 1 : 3;
}

/// Layout options by which `to` differs from `from`.
std::string layout_difference(const Plan& from, const Plan& to) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : " ") + text; };
  if (from.mesh.pp != to.mesh.pp) add(fmt::format("--pp {}", to.mesh.pp));
  if (from.mesh.dp != to.mesh.dp) add(fmt::format("--dp {}", to.mesh.dp));
  if (from.job.micro_batch != to.job.micro_batch)
    add(fmt::format("--micro-batch {}", to.job.micro_batch));
  if (from.stages.front().zero != to.stages.front().zero)
    add(fmt::format("--zero {}", to.stages.front().zero));
  if (from.schedule != to.schedule) add(fmt::format("--schedule {}", to.schedule));
  if (from.chunks_per_rank != to.chunks_per_rank) add(fmt::format("--vp {}", to.chunks_per_rank));
  return out;
}

class FixFinder {
 public:
  FixFinder(const Request& request, const Answer& answer) : request_(request), answer_(answer) {}

  Result<std::vector<Fix>> find() {
    const SearchSpace& given = request_.space;
    BAYPLAN_TRY(overhead, overhead_interval(request_.subject.cluster));
    margin_ = safe_margin(overhead);

    SearchSpace open = given;
    if (given.micro_batch)
      try_space(with([](SearchSpace& s) { s.micro_batch.reset(); }), "micro-batch");
    if (given.zero) try_space(with([](SearchSpace& s) { s.zero.reset(); }), "zero");
    if (given.pp || given.dp)
      try_space(with([](SearchSpace& s) { s.pp.reset(), s.dp.reset(); }), "parallelism");
    open = SearchSpace{};
    if (given.pp || given.dp || given.micro_batch || given.zero || given.schedule)
      try_space(open, "layout");
    try_savings();
    try_precision(given, open);
    try_sequence(given);
    try_devices();
    return ranked();
  }

 private:
  template <class Change>
  SearchSpace with(Change change) const {
    SearchSpace space = request_.space;
    change(space);
    return space;
  }

  /// Best of `space` for this job and graph, nullopt when there is no legal layout.
  std::optional<Evaluated> best_of(const Plan& base, SearchSpace space,
                                   const Subject& subject) const {
    space.margin = margin_;
    auto found =
        search_layouts(base, space, subject.graph, subject.cluster, step_time_score(subject));
    if (!found) return std::nullopt;
    if (found->best) return found->evaluated[*found->best];
    // The step is not scored when nothing fits: memory is the question then.
    return found->evaluated[found->roomiest];
  }

  void keep(const std::optional<Evaluated>& evaluated, const std::string& change,
            const std::string& kind, const std::string& exactness) {
    if (!evaluated || change.empty()) return;
    for (const Fix& fix : fixes_) {
      if (fix.change == change) return;
    }
    const double base = answer_.simulation.step_time.mid.value;
    Fix fix{change, kind, exactness, evaluated->peak, 0.0, evaluated->fits};
    if (evaluated->scored && base > 0.0) fix.step_ratio = evaluated->step.value / base;
    fixes_.push_back(std::move(fix));
  }

  void try_space(const SearchSpace& space, const std::string& kind) {
    const auto best = best_of(request_.base, space, request_.subject);
    if (best) keep(best, layout_difference(answer_.plan, best->plan), kind, "exact");
  }

  /// Recomputation and offload under the answer's layout, and under ZeRO 3 with the smallest
  /// micro-batch; each alone and with all that comes before it.
  void try_savings() {
    const Plan& now = answer_.plan;
    SearchSpace same;
    same.pp = now.mesh.pp;
    same.dp = now.mesh.dp;
    same.micro_batch = now.job.micro_batch;
    same.zero = now.stages.front().zero;
    same.grad_reduce = now.grad_reduce;
    same.schedule = now.schedule;
    same.chunks = now.chunks_per_rank;
    same.keeps_reshard = true;
    SearchSpace least = same;
    least.micro_batch = 1;
    least.grad_reduce.reset();
    if (now.mesh.dp > 1) least.zero = 3;
    struct Saving {
      const char* kind;
      Recompute recompute;
      Offload offload;
    };
    for (const Saving& s :
         {Saving{"recompute", Recompute::kSelective, {}},
          {"recompute", Recompute::kFull, {}},
          {"offload", Recompute::kNone, {.optimizer = true}},
          {"offload", Recompute::kFull, {.optimizer = true}},
          {"offload", Recompute::kNone, {.optimizer = true, .activations = true}}}) {
      Plan base = request_.base;
      base.reshard = now.reshard;
      base.recompute = std::max(base.recompute, s.recompute);
      base.offload.optimizer |= s.offload.optimizer;
      base.offload.activations |= s.offload.activations;
      std::string option;
      if (base.recompute != request_.base.recompute) {
        base.recompute_units.clear();
        option += fmt::format("--recompute {}", recompute_name(base.recompute));
      }
      if (base.offload != request_.base.offload)
        option += (option.empty() ? "--offload " : " --offload ") + offload_text(base.offload);
      if (option.empty()) continue;
      for (const SearchSpace* space : {&same, &least}) {
        const auto best = best_of(base, *space, request_.subject);
        if (!best) continue;
        const std::string layout = layout_difference(now, best->plan);
        keep(best, layout.empty() ? option : option + " " + layout, s.kind, "exact");
        if (best->fits) break;
      }
    }
  }

  void try_precision(const SearchSpace& given, const SearchSpace& open) {
    const Subject& subject = request_.subject;
    const DType now = request_.base.job.precision.compute;
    for (const DType narrower : {DType::kFp32, DType::kBf16}) {
      if (dtype_size(narrower) >= dtype_size(now)) continue;
      const bool known =
          std::all_of(subject.cluster.groups.begin(), subject.cluster.groups.end(),
                      [&](const NodeGroup& g) { return g.device.peak.contains(narrower); });
      if (!known) continue;
      Plan base = request_.base;
      base.job.precision = precision_of(narrower);
      const std::string option = fmt::format("--precision {}", dtype_name(narrower));
      for (const SearchSpace* space : {&given, &open}) {
        const auto best = best_of(base, *space, subject);
        if (!best) continue;
        const std::string layout = layout_difference(answer_.plan, best->plan);
        keep(best, layout.empty() ? option : option + " " + layout, "precision", "lossy");
        if (best->fits) break;
      }
    }
  }

  void try_sequence(const SearchSpace& given) {
    Plan base = request_.base;
    if (base.job.seq < 2) return;
    base.job.seq /= 2;
    const auto best = best_of(base, given, request_.subject);
    if (!best) return;
    const std::string layout = layout_difference(answer_.plan, best->plan);
    const std::string option = fmt::format("--seq {}", base.job.seq);
    keep(best, layout.empty() ? option : option + " " + layout, "sequence", "model-changing");
  }

  /// Twice, four … 64 times the devices of a single preset term, until one is enough.
  void try_devices() {
    auto terms = parse_cluster_expression(request_.base.cluster);
    if (!terms || terms->size() != 1 || terms->front().kind != ClusterTerm::Kind::kPreset) return;
    const ClusterTerm& term = terms->front();
    const std::size_t at = request_.base.cluster.find('@');
    const std::string network = at == std::string::npos ? "" : request_.base.cluster.substr(at);
    constexpr int kMostPerNode = 8;
    for (int factor = 2; factor <= 64; factor *= 2) {
      int nodes = term.nodes;
      int devices = term.devices;
      for (int f = factor; f > 1; f /= 2) (devices * 2 <= kMostPerNode ? devices : nodes) *= 2;
      const std::string text = nodes > 1
                                   ? fmt::format("{}x{}x{}{}", nodes, devices, term.name, network)
                                   : fmt::format("{}x{}{}", devices, term.name, network);
      auto cluster = resolve_cluster(text);
      if (!cluster) return;
      Subject larger = request_.subject;
      // Settings were applied to the smaller cluster's groups; the device and node stay those.
      larger.cluster.groups.front().nodes = nodes;
      larger.cluster.groups.front().devices_per_node = devices;
      SearchSpace open;
      const auto best = best_of(request_.base, open, larger);
      if (!best || !best->fits) continue;
      const std::string layout = layout_difference(answer_.plan, best->plan);
      keep(best, layout.empty() ? text : text + " " + layout, "devices", "exact");
      return;
    }
  }

  std::vector<Fix> ranked() {
    const bool any_fits =
        std::any_of(fixes_.begin(), fixes_.end(), [](const Fix& f) { return f.fits; });
    const Bytes now = answer_.needs[tightest(answer_.needs)].device;
    std::erase_if(fixes_, [&](const Fix& f) { return any_fits ? !f.fits : f.peak >= now; });
    std::stable_sort(fixes_.begin(), fixes_.end(), [](const Fix& a, const Fix& b) {
      const int x = cost_rank(a), y = cost_rank(b);
      if (x != y) return x < y;
      return a.fits ? a.step_ratio < b.step_ratio : a.peak < b.peak;
    });
    return fixes_;
  }

  const Request& request_;
  const Answer& answer_;
  Bytes margin_;
  std::vector<Fix> fixes_;
};

}  // namespace

Result<std::vector<Fix>> find_fixes(const Request& request, const Answer& answer) {
  return FixFinder(request, answer).find();
}

}  // namespace bayplan::cli
