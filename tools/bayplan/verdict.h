// Does it fit, and how sure is that? An arena is exact; what the runtime takes beside it on a GPU
// is known within an interval only (models/runtimes). Not for: what to change (fixes.h).
#pragma once

#include <string_view>
#include <vector>

#include "planner/core/cluster.h"
#include "planner/core/result.h"
#include "planner/core/units.h"
#include "planner/search/memory_fit.h"

namespace bayplan::cli {

/// How far device bytes may lie below and above allocated + context.
struct OverheadInterval {
  Bytes below;
  Bytes above;
};

/// Of runtime "bayplan" on the cluster's devices; zero on CPUs.
Result<OverheadInterval> overhead_interval(const Cluster& cluster);

enum class Verdict : std::uint8_t { kFits, kTight, kDoesNotFit };
std::string_view verdict_name(Verdict verdict);

/// Smallest probability over the rank classes, within [0.01, 0.99]: the interval is read as the
/// central 90 % of a normal distribution. `host_fits` false makes it the smallest.
double probability_fits(const std::vector<RankMemoryNeed>& needs, const OverheadInterval& overhead,
                        bool host_fits);
/// tight is 0.1 < probability < 0.9.
Verdict verdict_of(double probability);

/// Bytes to keep free on a device so that the verdict is kFits.
Bytes safe_margin(const OverheadInterval& overhead);

}  // namespace bayplan::cli
