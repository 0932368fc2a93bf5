#include "planner/schedule/schedule.h"

#include <array>
#include <string>

#include "planner/schedule/gpipe.h"
#include "planner/schedule/one_f_one_b.h"

namespace bayplan {

std::span<const ScheduleSpec> schedules() {
  static constexpr std::array<ScheduleSpec, 2> kSchedules = {{
      {"gpipe", "all forwards, then all backwards: holds every micro-batch of a step", 1, 1, gpipe},
      {"1f1b", "one forward, one backward: GPipe's bubble, at most p micro-batches held", 1, 1,
       one_f_one_b},
  }};
  return kSchedules;
}

Result<Schedule> make_schedule(std::string_view name, const ScheduleShape& shape) {
  std::string known;
  for (const ScheduleSpec& spec : schedules()) {
    if (spec.name != name) {
      known += (known.empty() ? "" : ", ") + std::string(spec.name);
      continue;
    }
    if (shape.ranks < 1 || shape.micro_batches < 1) {
      return Error{"invalid-schedule-shape",
                   "a schedule needs at least one pipeline rank and one micro-batch, not " +
                       std::to_string(shape.ranks) + " and " + std::to_string(shape.micro_batches),
                   "--pp, --global-batch", "raise the one that is below 1"};
    }
    if (shape.chunks_per_rank < spec.min_chunks || shape.chunks_per_rank > spec.max_chunks) {
      const std::string range =
          spec.min_chunks == spec.max_chunks
              ? std::to_string(spec.min_chunks)
              : std::to_string(spec.min_chunks) + " to " + std::to_string(spec.max_chunks);
      return Error{"unsupported-chunks",
                   "schedule " + std::string(name) + " takes " + range +
                       " chunk(s) per rank, not " + std::to_string(shape.chunks_per_rank),
                   "--vp", "use --vp " + std::to_string(spec.min_chunks)};
    }
    return spec.generate(shape);
  }
  return Error{"unknown-schedule", "there is no schedule \"" + std::string(name) + "\"",
               "--schedule", "known schedules: " + known};
}

}  // namespace bayplan
