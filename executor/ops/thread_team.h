// The threads of one rank: tasks of an operator, each run by one thread. Every calling thread has
// its own team, started when first needed. ATen itself always runs on one thread inside a task,
// so what a task computes cannot depend on how many threads there are.
// Not for: streams and communication (rank_runner).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/types.h"

namespace bayplan::exec {

namespace detail {
void run_tasks(int threads, std::int64_t tasks, void (*run)(const void*, std::int64_t),
               const void* body);
}

/// Runs body(i) for i in [0, tasks), on at most `threads` threads, the caller among them; returns
/// when all are done. Tasks must not depend on one another. The first exception is rethrown.
/// Inside an allocator scope each thread gets an equal share of the free workspace.
template <class Body>
void parallel_tasks(int threads, std::int64_t tasks, const Body& body) {
  detail::run_tasks(
      threads, tasks, [](const void* b, std::int64_t i) { (*static_cast<const Body*>(b))(i); },
      &body);
}

/// Runs body(kernels::Range) over a partition of [0, n) in parts of at least `grain`.
template <class Body>
void parallel_ranges(int threads, std::int64_t n, std::int64_t grain, const Body& body) {
  if (n <= 0) return;
  const std::int64_t parts =
      std::clamp<std::int64_t>(n / std::max<std::int64_t>(grain, 1), 1, threads);
  // Parts begin at multiples of 16, so that threads share no cache line of a dense array.
  const std::int64_t size = ((n + parts - 1) / parts + 15) / 16 * 16;
  parallel_tasks(threads, (n + size - 1) / size, [&](std::int64_t i) {
    body(kernels::Range{i * size, std::min(n, (i + 1) * size)});
  });
}

}  // namespace bayplan::exec
