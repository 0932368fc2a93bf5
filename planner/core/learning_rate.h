// Learning-rate schedules: the rate of each step as a function of the job alone, so that every
// layout and every rank has the same. Not for: skipped steps, which do not shift the schedule.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "planner/core/result.h"

namespace bayplan {

struct TrainingJob;

/// How the rate goes on behind the warm-up.
enum class LearningRateSchedule : std::uint8_t { kConstant, kLinear, kCosine, kWsd };

/// Names in plan files and on the command line, in the order of the enumerators.
constexpr std::array<std::string_view, 4> kLearningRateScheduleNames = {"constant", "linear",
                                                                        "cosine", "wsd"};
constexpr std::string_view learning_rate_schedule_name(LearningRateSchedule schedule) {
  return kLearningRateScheduleNames[static_cast<std::size_t>(schedule)];
}
std::optional<LearningRateSchedule> parse_learning_rate_schedule(std::string_view name);

/// The rate of optimizer step `step`, counted from 0.
///   Legend: S job.steps, W warmup_steps, D decay_steps, top learning_rate, low min_learning_rate.
///   step < W              top (step + 1) / W
///   constant              top
///   linear                top + (low - top) u,                u = (step - W) / (S - W)
///   cosine                low + (top - low) (1 + cos(pi u)) / 2
///   wsd, step < S - D     top; then linear in                 u = (step - (S - D)) / D
/// So the first step behind the warm-up has the top rate, and `low` would be that of step S: no
/// step is spent at a rate of 0. From step S on the rate is `low`. (Cosine: Loshchilov and Hutter
/// 2017, one period. Warmup-stable-decay: Hu et al. 2024, with a linear decay.)
double learning_rate_at(const TrainingJob& job, std::int64_t step);

/// Refuses schedules that contradict themselves. `where` of the error is a JSON pointer into the
/// job ("/decay_steps").
Status check_learning_rate(const TrainingJob& job);

}  // namespace bayplan
