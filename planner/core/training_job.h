// TrainingJob: what is asked for, independent of where and how it is laid out.
#pragma once

#include <cstdint>
#include <string>

#include "planner/core/dtype.h"
#include "planner/core/learning_rate.h"
#include "planner/core/optimizer.h"

namespace bayplan {

enum class AttentionKind : std::uint8_t { kAuto, kFlash };

struct TrainingJob {
  std::int64_t seq = 0;
  std::int64_t global_batch = 1;  // samples per step
  std::int64_t micro_batch = 1;   // samples per micro-batch of one replica
  Precision precision;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  AttentionKind attention = AttentionKind::kAuto;
  double learning_rate = 1e-3;  // the highest of the schedule, learning_rate.h
  LearningRateSchedule lr_schedule = LearningRateSchedule::kConstant;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;  // the last ones, of wsd only
  double min_learning_rate = 0.0;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double momentum = 0.9;   // of sgd-momentum
  double clip_norm = 1.0;  // 0 = off
  double dropout = 0.0;
  std::uint64_t seed = 0;
  std::int64_t steps = 1;
  friend bool operator==(const TrainingJob&, const TrainingJob&) = default;
};

}  // namespace bayplan
