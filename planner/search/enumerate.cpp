#include "planner/search/enumerate.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/program/lower.h"
#include "planner/schedule/schedule.h"

namespace bayplan {
namespace {

/// Divisors of n that are powers of two, and n itself.
std::vector<std::int64_t> micro_batch_sizes(std::int64_t n) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t b = 1; b <= n && n % b == 0; b *= 2) sizes.push_back(b);
  if (sizes.back() != n) sizes.push_back(n);
  return sizes;
}

std::string space_in_words(const SearchSpace& space) {
  std::string words;
  const auto add = [&](std::string_view what) {
    words += (words.empty() ? "" : " x ") + std::string(what);
  };
  if (!space.pp || !space.dp) add("pp, dp");
  if (!space.micro_batch) add("micro-batch (powers of two and the largest)");
  if (!space.zero) add("ZeRO 0 to 3");
  if (!space.schedule) add("schedule");
  if (!space.chunks) add("chunks (1, 2, 4)");
  return words.empty() ? "the given layout" : words + "; even stages, tp = cp = ep = 1";
}

struct ScheduleChoice {
  std::string name;
  int chunks = 1;
};

/// The schedules and chunk counts to try for one pipeline degree.
std::vector<ScheduleChoice> schedule_choices(const SearchSpace& space, int pp,
                                             std::int64_t micro_batches, int units) {
  if (space.schedule && (space.chunks || *space.schedule == "table"))
    return {{*space.schedule, space.chunks.value_or(1)}};
  std::vector<ScheduleChoice> choices;
  for (const ScheduleSpec& spec : schedules()) {
    if (space.schedule && *space.schedule != spec.name) continue;
    if (!space.schedule && !space.chunks && pp == 1 && spec.name != "1f1b") continue;
    if (!space.schedule && micro_batches == 1 && spec.name == "gpipe") continue;
    for (const int chunks : {1, 2, 4}) {
      if (space.chunks && *space.chunks != chunks) continue;
      if (chunks < spec.min_chunks || chunks > spec.max_chunks) continue;
      // With one chunk these are 1F1B and GPipe.
      const bool many = spec.max_chunks > spec.min_chunks;
      if (many && chunks == 1 && !space.schedule) continue;
      if (chunks > 1 && pp * chunks > units && !space.chunks) continue;
      choices.push_back({std::string(spec.name), chunks});
    }
    // A count that is not tried by itself is still one that may be asked for.
    const int asked = space.chunks.value_or(1);
    if (asked != 1 && asked != 2 && asked != 4 && asked >= spec.min_chunks &&
        asked <= spec.max_chunks) {
      choices.push_back({std::string(spec.name), asked});
    }
  }
  return choices;
}

/// Memory only; the step time is not known yet.
Evaluated judge(const Plan& plan, const Program& program, const Cluster& cluster, Bytes margin) {
  const std::vector<RankMemoryNeed> needs = memory_needs(program, cluster);
  const RankMemoryNeed& worst = needs[tightest(needs)];
  Evaluated result;
  result.plan = plan;
  result.fits = worst.device + margin <= worst.capacity && fits_host(needs, program, cluster);
  result.peak = worst.device;
  result.room = worst.capacity - worst.device;
  return result;
}

}  // namespace

Result<std::vector<Plan>> enumerate_layouts(const Plan& base, const SearchSpace& space,
                                            const ModelGraph& graph, int devices) {
  std::vector<Plan> plans;
  bool batch_refused = false;
  const int units = static_cast<int>(graph.units.size());
  for (int pp = 1; pp <= devices; ++pp) {
    if (devices % pp != 0 || (space.pp && *space.pp != pp)) continue;
    const int dp = devices / pp;
    if (space.dp && *space.dp != dp) continue;
    if (pp > units && !space.pp) break;
    const std::int64_t batch = base.job.global_batch;
    if (batch % dp != 0) {
      batch_refused = true;
      continue;
    }
    const std::int64_t per_replica = batch / dp;
    for (const std::int64_t micro_batch : space.micro_batch
                                              ? std::vector<std::int64_t>{*space.micro_batch}
                                              : micro_batch_sizes(per_replica)) {
      if (micro_batch < 1 || per_replica % micro_batch != 0) {
        batch_refused = true;
        continue;
      }
      const std::int64_t micro_batches = per_replica / micro_batch;
      for (int zero = 0; zero <= 3; ++zero) {
        if (space.zero ? *space.zero != zero : zero > 0 && dp == 1) continue;
        for (const ScheduleChoice& choice : schedule_choices(space, pp, micro_batches, units)) {
          Plan plan = base;
          plan.mesh.pp = pp;
          plan.mesh.dp = dp;
          plan.job.micro_batch = micro_batch;
          plan.grad_reduce =
              space.grad_reduce.value_or(zero >= 2 ? GradReduce::kMicroBatch : GradReduce::kStep);
          if (choice.name == "breadth-first" && !space.keeps_reshard)
            plan.reshard = Reshard::kChunk;
          plan.schedule = choice.name;
          plan.chunks_per_rank = choice.chunks;
          // More stages than units: one stage keeps the plan well-formed and lower() says why not.
          plan.stages = even_stages(graph, std::min(pp * choice.chunks, units), zero);
          plan.replicas.assign(static_cast<std::size_t>(dp), ReplicaPlan{micro_batches});
          plans.push_back(std::move(plan));
        }
      }
    }
  }
  if (!plans.empty()) return plans;
  if (batch_refused) {
    const int dp = space.dp.value_or(space.pp ? devices / *space.pp : 1);
    const std::int64_t round = space.micro_batch.value_or(1) * dp;
    return Error{"batch-not-divisible",
                 fmt::format("global batch {} is not a multiple of micro-batch {} x dp {}",
                             base.job.global_batch, space.micro_batch.value_or(1), dp),
                 "--global-batch",
                 fmt::format("use a global batch of {}", round_up(base.job.global_batch, round))};
  }
  return Error{"world-size",
               fmt::format("no layout with {}{} uses exactly {} devices",
                           space.pp ? fmt::format("pp {}", *space.pp) : "any pp",
                           space.dp ? fmt::format(" and dp {}", *space.dp) : "", devices),
               "--pp, --dp", "pp x dp must equal the cluster's device count"};
}

Result<SearchResult> search_layouts(const Plan& base, const SearchSpace& space,
                                    const ModelGraph& graph, const Cluster& cluster,
                                    const ScoringCallback& score, const SearchProgress& progress) {
  BAYPLAN_TRY(plans, enumerate_layouts(base, space, graph, cluster.device_count()));
  SearchResult result;
  result.space = space_in_words(space);
  std::optional<Error> first_error;
  std::size_t done = 0;
  for (const Plan& plan : plans) {
    if (progress) progress(done++, plans.size());
    auto program = lower(plan, graph, cluster);
    if (!program) {
      if (!first_error) first_error = program.error();
      continue;
    }
    Evaluated evaluated = judge(plan, *program, cluster, space.margin);
    if (evaluated.fits && score) {
      BAYPLAN_TRY(step, score(*program));
      evaluated.step = step;
      evaluated.scored = true;
    }
    const std::size_t index = result.evaluated.size();
    if (index == 0 || evaluated.room > result.evaluated[result.roomiest].room)
      result.roomiest = index;
    if (evaluated.fits) {
      const auto better = [&](const Evaluated& than) {
        return evaluated.step < than.step ||
               (evaluated.step == than.step && evaluated.room > than.room);
      };
      if (!result.best || better(result.evaluated[*result.best])) result.best = index;
    }
    result.evaluated.push_back(std::move(evaluated));
  }
  if (result.evaluated.empty()) return *first_error;
  return result;
}

}  // namespace bayplan
