#include "planner/schedule/schedule.h"

#include <array>
#include <string>

#include "planner/schedule/breadth_first.h"
#include "planner/schedule/dual_pipe.h"
#include "planner/schedule/gpipe.h"
#include "planner/schedule/interleaved.h"
#include "planner/schedule/one_f_one_b.h"
#include "planner/schedule/timing.h"
#include "planner/schedule/zbv.h"
#include "planner/schedule/zero_bubble.h"

namespace bayplan {

std::span<const ScheduleSpec> schedules() {
  static constexpr std::array<ScheduleSpec, 8> kSchedules = {{
      {"gpipe", "all forwards, then all backwards: holds every micro-batch of a step", 1, 1, gpipe},
      {"1f1b", "one forward, one backward: GPipe's bubble, at most p micro-batches held", 1, 1,
       one_f_one_b},
      {"interleaved", "1F1B over v chunks per rank: 1/v of the bubble, v times the messages", 1,
       kMostChunks, interleaved},
      {"breadth-first", "chunk after chunk over all micro-batches: one ZeRO-3 gather per chunk", 1,
       kMostChunks, breadth_first},
      {"zb-h1", "1F1B with weight gradients in the gaps: a third of its bubble, p held", 1, 1,
       zb_h1},
      {"zb-h2", "no bubble inside a step for 2p-1 micro-batches held", 1, 1, zb_h2},
      {"zbv", "two chunks in a V, weight gradients in the gaps: 1F1B's memory", 2, 2, zbv},
      {"dualpipev", "two chunks in a V, forward and backward paired", 2, 2, dualpipev},
  }};
  return kSchedules;
}

const ScheduleSpec* find_schedule(std::string_view name, std::span<const ScheduleSpec> known) {
  for (const ScheduleSpec& spec : known) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

Result<Schedule> make_schedule(std::string_view name, const ScheduleShape& shape,
                               std::span<const ScheduleSpec> known) {
  const ScheduleSpec* spec = find_schedule(name, known);
  if (spec == nullptr) {
    std::string names;
    for (const ScheduleSpec& s : known) names += (names.empty() ? "" : ", ") + std::string(s.name);
    return Error{"unknown-schedule", "there is no schedule \"" + std::string(name) + "\"",
                 "--schedule", "known schedules: " + names};
  }
  if (shape.ranks < 1 || shape.micro_batches < 1) {
    return Error{"invalid-schedule-shape",
                 "a schedule needs at least one pipeline rank and one micro-batch, not " +
                     std::to_string(shape.ranks) + " and " + std::to_string(shape.micro_batches),
                 "--pp, --global-batch", "raise the one that is below 1"};
  }
  if (shape.chunks_per_rank < spec->min_chunks || shape.chunks_per_rank > spec->max_chunks) {
    const std::string range =
        spec->min_chunks == spec->max_chunks
            ? std::to_string(spec->min_chunks)
            : std::to_string(spec->min_chunks) + " to " + std::to_string(spec->max_chunks);
    return Error{"unsupported-chunks",
                 "schedule " + std::string(name) + " takes " + range + " chunk(s) per rank, not " +
                     std::to_string(shape.chunks_per_rank),
                 "--vp", "use --vp " + std::to_string(spec->min_chunks)};
  }
  Schedule schedule = spec->generate(shape);
  BAYPLAN_RETURN_IF_ERROR(check_schedule(schedule, shape.micro_batches));
  return schedule;
}

}  // namespace bayplan
