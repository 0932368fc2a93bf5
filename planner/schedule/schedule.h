// A pipeline schedule is data: for every pipeline rank, the order of its compute. Sends,
// reductions and gathers are added by planner/program/pass_*, so one order combines with every
// ZeRO stage. A new schedule is one file with a generator and one line in schedules().
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "planner/core/result.h"

namespace bayplan {

enum class ScheduleOpKind : std::uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };

struct ScheduleOp {
  ScheduleOpKind kind{};
  std::int32_t stage = 0;  // pipeline stage, 0 .. p·v−1 in model order
  std::int32_t micro_batch = 0;
  friend bool operator==(const ScheduleOp&, const ScheduleOp&) = default;
};

struct ScheduleShape {
  int ranks = 1;            // p
  int chunks_per_rank = 1;  // v
  int micro_batches = 1;    // m
};

/// rank_ops[r]: what pipeline rank r computes, in order. stage_rank[i]: the rank that holds stage
/// i.
struct Schedule {
  std::vector<std::vector<ScheduleOp>> rank_ops;
  std::vector<int> stage_rank;
};

struct ScheduleSpec {
  std::string_view name;         // --schedule spelling
  std::string_view description;  // one line for `presets schedules`
  int min_chunks = 1;
  int max_chunks = 1;
  Schedule (*generate)(const ScheduleShape&) = nullptr;
};

/// Most chunks per rank of schedules that take any number.
constexpr int kMostChunks = 1024;

/// Every schedule that can be generated, in the order in which help lists them.
std::span<const ScheduleSpec> schedules();

/// The entry of `name` among `known`, or null.
const ScheduleSpec* find_schedule(std::string_view name,
                                  std::span<const ScheduleSpec> known = schedules());

/// The op table of schedule `name`, checked (planner/schedule/timing.h), or an error that names
/// the known schedules.
Result<Schedule> make_schedule(std::string_view name, const ScheduleShape& shape,
                               std::span<const ScheduleSpec> known = schedules());

}  // namespace bayplan
