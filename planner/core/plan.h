// Plan: the decisions, and nothing that follows from them. Arrays per stage and per replica, so
// uneven stages and uneven hardware are data. JSON form: planner/formats/plan_json.h and
// docs/plan-format.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/core/mesh.h"
#include "planner/core/training_job.h"

namespace bayplan {

/// When data-parallel gradients are reduced (definitions of `--grad-reduce`).
enum class GradReduce : std::uint8_t { kStep, kMicroBatch };

struct StagePlan {
  int first_unit = 0;
  int unit_count = 0;
  int zero = 0;  // ZeRO stage of the stage's parameter groups
  friend bool operator==(const StagePlan&, const StagePlan&) = default;
};

struct ReplicaPlan {
  std::int64_t micro_batches = 1;
  friend bool operator==(const ReplicaPlan&, const ReplicaPlan&) = default;
};

struct Plan {
  static constexpr int kVersion = 1;
  std::string model;    // MODEL as the user gave it
  std::string cluster;  // CLUSTER as the user gave it
  TrainingJob job;
  Mesh mesh;
  int chunks_per_rank = 1;  // vp
  std::string schedule = "1f1b";
  /// With schedule "table": its lines, one per pipeline rank (planner/schedule/table.h).
  std::vector<std::string> schedule_table;
  std::vector<StagePlan> stages;      // pp · vp entries, model order
  std::vector<ReplicaPlan> replicas;  // dp entries
  GradReduce grad_reduce = GradReduce::kStep;
  int threads_per_rank = 1;
  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace bayplan
