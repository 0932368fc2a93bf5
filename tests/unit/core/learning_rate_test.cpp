// Learning-rate schedules: values derived from the formulas, and what is refused.
#include "planner/core/learning_rate.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/core/training_job.h"

namespace bayplan {
namespace {

/// Highest rate 8, 10 steps, 2 of them warm-up.
TrainingJob job_with(LearningRateSchedule schedule, double low = 0.0) {
  TrainingJob job;
  job.learning_rate = 8.0;
  job.steps = 10;
  job.warmup_steps = 2;
  job.lr_schedule = schedule;
  job.min_learning_rate = low;
  return job;
}

std::vector<double> rates(const TrainingJob& job, std::int64_t steps) {
  std::vector<double> all;
  for (std::int64_t s = 0; s < steps; ++s) all.push_back(learning_rate_at(job, s));
  return all;
}

TEST(LearningRate, ConstantBehindTheWarmUp) {
  // 8 * 1/2, 8 * 2/2, then 8 for as long as it takes.
  EXPECT_EQ(rates(job_with(LearningRateSchedule::kConstant), 5),
            (std::vector<double>{4, 8, 8, 8, 8}));
  EXPECT_EQ(learning_rate_at(job_with(LearningRateSchedule::kConstant), 1'000'000), 8.0);
  EXPECT_EQ(learning_rate_at(TrainingJob{}, 0), 1e-3);
}

TEST(LearningRate, LinearReachesTheLowestBehindTheLastStep) {
  // 8 steps behind the warm-up, each 8/8 = 1 lower; the last, step 9, has 1 and step 10 would
  // have 0.
  EXPECT_EQ(rates(job_with(LearningRateSchedule::kLinear), 12),
            (std::vector<double>{4, 8, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0}));
  // Down to 4: each (8 - 4)/8 = 0.5 lower.
  EXPECT_EQ(learning_rate_at(job_with(LearningRateSchedule::kLinear, 4.0), 9), 4.5);
}

TEST(LearningRate, CosineIsHalfWayInTheMiddle) {
  const TrainingJob job = job_with(LearningRateSchedule::kCosine, 2.0);
  EXPECT_EQ(learning_rate_at(job, 2), 8.0);
  // u = 2/8: 2 + 6 (1 + cos 45 degrees)/2 = 2 + 3 (1 + sqrt(1/2)); u = 1/2: 2 + 6/2 = 5.
  EXPECT_NEAR(learning_rate_at(job, 4), 2.0 + 3.0 * (1.0 + 0.70710678118654752), 1e-14);
  EXPECT_NEAR(learning_rate_at(job, 6), 5.0, 1e-14);
  EXPECT_EQ(learning_rate_at(job, 10), 2.0);
  EXPECT_EQ(learning_rate_at(job, 99), 2.0);
}

TEST(LearningRate, WsdIsConstantUntilItsDecay) {
  TrainingJob job = job_with(LearningRateSchedule::kWsd);
  job.decay_steps = 4;
  // The last four steps start at u = 0, 1/4, 1/2, 3/4.
  EXPECT_EQ(rates(job, 10), (std::vector<double>{4, 8, 8, 8, 8, 8, 8, 6, 4, 2}));
}

TEST(LearningRate, NoScheduleLeavesItsBounds) {
  for (int s = 0; s < 4; ++s) {
    TrainingJob job = job_with(static_cast<LearningRateSchedule>(s));
    job.steps = 1000;
    job.warmup_steps = 100;
    if (job.lr_schedule == LearningRateSchedule::kWsd) job.decay_steps = 300;
    ASSERT_TRUE(check_learning_rate(job).ok());
    double before = 0.0;
    for (std::int64_t step = 0; step < 1100; ++step) {
      const double rate = learning_rate_at(job, step);
      EXPECT_GE(rate, 0.0);
      EXPECT_LE(rate, 8.0);
      EXPECT_TRUE(step < 100 ? rate > before : rate <= before) << step;
      before = rate;
    }
  }
}

TEST(LearningRate, ContradictionsAreRefusedByField) {
  const auto where = [](TrainingJob job, auto change) {
    change(job);
    const Status status = check_learning_rate(job);
    if (status.ok()) return std::string("accepted");
    EXPECT_FALSE(status.error().hint.empty());
    return status.error().where;
  };
  const TrainingJob constant = job_with(LearningRateSchedule::kConstant);
  const TrainingJob linear = job_with(LearningRateSchedule::kLinear);
  const TrainingJob wsd = job_with(LearningRateSchedule::kWsd);
  const auto same = [](TrainingJob&) {};
  EXPECT_EQ(where(constant, same), "accepted");
  EXPECT_EQ(where(constant, [](TrainingJob& j) { j.warmup_steps = 11; }), "accepted");
  EXPECT_EQ(where(constant, [](TrainingJob& j) { j.decay_steps = 1; }), "/decay_steps");
  EXPECT_EQ(where(constant, [](TrainingJob& j) { j.min_learning_rate = 1; }), "/min_learning_rate");
  EXPECT_EQ(where(linear, same), "accepted");
  EXPECT_EQ(where(linear, [](TrainingJob& j) { j.decay_steps = 1; }), "/decay_steps");
  EXPECT_EQ(where(linear, [](TrainingJob& j) { j.warmup_steps = 9; }), "accepted");
  EXPECT_EQ(where(linear, [](TrainingJob& j) { j.warmup_steps = 10; }), "/warmup_steps");
  EXPECT_EQ(where(linear, [](TrainingJob& j) { j.warmup_steps = -1; }), "/warmup_steps");
  EXPECT_EQ(where(linear, [](TrainingJob& j) { j.min_learning_rate = 8.5; }), "/min_learning_rate");
  EXPECT_EQ(where(wsd, same), "/decay_steps");
  EXPECT_EQ(where(wsd, [](TrainingJob& j) { j.decay_steps = 8; }), "accepted");
  EXPECT_EQ(where(wsd, [](TrainingJob& j) { j.decay_steps = 9; }), "/decay_steps");
}

}  // namespace
}  // namespace bayplan
