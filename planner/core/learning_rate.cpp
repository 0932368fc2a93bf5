#include "planner/core/learning_rate.h"

#include <cmath>
#include <numbers>
#include <string>

#include "planner/core/check.h"
#include "planner/core/training_job.h"

namespace bayplan {
namespace {

/// Share of the way from the top rate to the lowest after `done` of `length` steps.
double way(std::int64_t done, std::int64_t length) {
  return done >= length ? 1.0 : static_cast<double>(done) / static_cast<double>(length);
}

Error refused(const char* field, std::string message, std::string hint) {
  return {"bad-learning-rate", std::move(message), field, std::move(hint)};
}

}  // namespace

std::optional<LearningRateSchedule> parse_learning_rate_schedule(std::string_view name) {
  for (std::size_t i = 0; i < kLearningRateScheduleNames.size(); ++i) {
    if (kLearningRateScheduleNames[i] == name) return static_cast<LearningRateSchedule>(i);
  }
  return std::nullopt;
}

double learning_rate_at(const TrainingJob& job, std::int64_t step) {
  const double top = job.learning_rate;
  const double low = job.min_learning_rate;
  if (step < job.warmup_steps) {
    return top * (static_cast<double>(step + 1) / static_cast<double>(job.warmup_steps));
  }
  switch (job.lr_schedule) {
    case LearningRateSchedule::kConstant:
      return top;
    case LearningRateSchedule::kLinear:
      return top + (low - top) * way(step - job.warmup_steps, job.steps - job.warmup_steps);
    case LearningRateSchedule::kCosine: {
      const double u = way(step - job.warmup_steps, job.steps - job.warmup_steps);
      return low + (top - low) * (0.5 * (1.0 + std::cos(std::numbers::pi * u)));
    }
    case LearningRateSchedule::kWsd: {
      const std::int64_t stable = job.steps - job.decay_steps;
      return step < stable ? top : top + (low - top) * way(step - stable, job.decay_steps);
    }
  }
  BAYPLAN_CHECK(false, "unknown learning-rate schedule");
}

Status check_learning_rate(const TrainingJob& job) {
  const std::string name(learning_rate_schedule_name(job.lr_schedule));
  const std::string steps = std::to_string(job.steps) + (job.steps == 1 ? " step" : " steps");
  if (job.warmup_steps < 0 || job.decay_steps < 0) {
    return refused(job.warmup_steps < 0 ? "/warmup_steps" : "/decay_steps", "must not be negative",
                   "use 0 for none");
  }
  const bool wsd = job.lr_schedule == LearningRateSchedule::kWsd;
  if (wsd && job.decay_steps == 0) {
    return refused("/decay_steps", "wsd does not say over how many steps it decays",
                   "give the last steps that decay: --decay-steps N");
  }
  if (!wsd && job.decay_steps != 0) {
    return refused("/decay_steps", name + " has no decay of its own length, only wsd has",
                   "leave it out, or use --lr-schedule wsd");
  }
  if (job.lr_schedule == LearningRateSchedule::kConstant) {
    if (job.min_learning_rate == 0.0) return {};
    return refused("/min_learning_rate", "a constant learning rate never goes down to another",
                   "leave it out, or use --lr-schedule linear, cosine or wsd");
  }
  if (!(job.min_learning_rate >= 0.0 && job.min_learning_rate <= job.learning_rate)) {
    return refused("/min_learning_rate", "must be between 0 and the learning rate",
                   "use 0, or a part of --lr");
  }
  if (job.warmup_steps >= job.steps) {
    return refused("/warmup_steps",
                   std::to_string(job.warmup_steps) + " steps of warm-up leave nothing of the " +
                       steps + " for " + name,
                   "warm up for fewer steps, or train for more: --steps N");
  }
  if (job.decay_steps > job.steps - job.warmup_steps) {
    return refused("/decay_steps",
                   std::to_string(job.warmup_steps) + " steps of warm-up and " +
                       std::to_string(job.decay_steps) + " of decay are more than the " + steps,
                   "shorten one of them, or train for more: --steps N");
  }
  return {};
}

}  // namespace bayplan
