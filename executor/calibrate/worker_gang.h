// Times a piece of work while several threads do the same at once, each on data of its own: what
// a rank sees while the other ranks of its machine compute. Not for: work that threads share.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace bayplan::exec {

/// One call of the timed work; `call` counts from 0. Runs on one thread only.
using TimedCall = std::function<void(std::int64_t call)>;

struct GangOptions {
  int workers = 1;
  double seconds = 0.01;  // how long to keep calling
  std::int64_t least_calls = 3;
  std::int64_t warm_calls = 1;
  bool pin = true;  // one processor a worker; off when the work starts threads of its own
};

struct GangTime {
  double busy = 0.0;              // seconds per call: mean over workers of each one's median
  double alone = 0.0;             // the first worker's median while the others wait
  double calls_per_second = 0.0;  // all workers together
};

/// Reorders the values.
double median(std::vector<double>& values);

/// `make` runs once on each worker's thread and returns its call; everybody warms up before the
/// clock starts, then the first worker times alone, then all together. Nobody stops before all
/// have finished timing.
GangTime time_gang(const GangOptions& options, const std::function<TimedCall(int worker)>& make);

}  // namespace bayplan::exec
