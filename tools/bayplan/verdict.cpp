#include "tools/bayplan/verdict.h"

#include <algorithm>
#include <cmath>

#include "models/runtimes.h"

namespace bayplan::cli {
namespace {

// Quantiles of the standard normal distribution: 95 % (half of a central 90 %) and 90 %.
constexpr double kQuantile95 = 1.6448536269514722;
constexpr double kQuantile90 = 1.2815515655446004;

double mean(const OverheadInterval& o) {
  return 0.5 * static_cast<double>(o.above.value - o.below.value);
}
double deviation(const OverheadInterval& o) {
  return 0.5 * static_cast<double>(o.above.value + o.below.value) / kQuantile95;
}

}  // namespace

Result<OverheadInterval> overhead_interval(const Cluster& cluster) {
  for (const NodeGroup& group : cluster.groups) {
    if (group.device.device_class == DeviceClass::kCpu) continue;
    BAYPLAN_TRY(runtime, find_runtime("bayplan"));
    return OverheadInterval{runtime.overhead_below, runtime.overhead_above};
  }
  return OverheadInterval{};
}

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFits:
      return "fits";
    case Verdict::kTight:
      return "tight";
    case Verdict::kDoesNotFit:
      return "does_not_fit";
  }
  return "does_not_fit";
}

double probability_fits(const std::vector<RankMemoryNeed>& needs, const OverheadInterval& overhead,
                        bool host_fits) {
  double worst = host_fits ? 1.0 : 0.0;
  for (const RankMemoryNeed& need : needs) {
    const double room = static_cast<double>((need.capacity - need.device).value) - mean(overhead);
    const double spread = deviation(overhead);
    const double p =
        spread > 0.0 ? 0.5 * std::erfc(-room / spread / std::sqrt(2.0)) : (room >= 0.0 ? 1.0 : 0.0);
    worst = std::min(worst, p);
  }
  return std::clamp(worst, 0.01, 0.99);
}

Verdict verdict_of(double probability) {
  if (probability >= 0.9) return Verdict::kFits;
  return probability > 0.1 ? Verdict::kTight : Verdict::kDoesNotFit;
}

Bytes safe_margin(const OverheadInterval& overhead) {
  // Rounded up, so that exactly this margin is on the safe side.
  return Bytes(
      static_cast<std::int64_t>(std::ceil(mean(overhead) + kQuantile90 * deviation(overhead))));
}

}  // namespace bayplan::cli
