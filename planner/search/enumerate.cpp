#include "planner/search/enumerate.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/program/lower.h"

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
  if (!space.zero) add("ZeRO 0, 1");
  if (!space.schedule) add("schedule gpipe, 1f1b");
  return words.empty() ? "the given layout" : words + "; even stages, tp = cp = ep = 1";
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
      for (int zero = 0; zero <= 1; ++zero) {
        if (space.zero ? *space.zero != zero : zero == 1 && dp == 1) continue;
        for (const char* schedule : {"gpipe", "1f1b"}) {
          const bool no_difference = pp == 1 || micro_batches == 1;
          if (space.schedule ? *space.schedule != schedule
                             : no_difference && std::string_view(schedule) == "gpipe") {
            continue;
          }
          Plan plan = base;
          plan.mesh.pp = pp;
          plan.mesh.dp = dp;
          plan.job.micro_batch = micro_batch;
          plan.schedule = schedule;
          // More stages than units: one stage keeps the plan well-formed and lower() says why not.
          plan.stages = even_stages(graph, std::min(pp, units), zero);
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
