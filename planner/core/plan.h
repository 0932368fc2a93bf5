// Plan: the decisions, and nothing that follows from them. Arrays per stage and per replica, so
// uneven stages and uneven hardware are data. JSON form: planner/formats/plan_json.h and
// docs/plan-format.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/core/mesh.h"
#include "planner/core/training_job.h"
#include "planner/core/units.h"

namespace bayplan {

/// When data-parallel gradients are reduced (definitions of `--grad-reduce`).
enum class GradReduce : std::uint8_t { kStep, kMicroBatch };

/// How long gathered ZeRO-3 parameters are kept (`--reshard-after-forward`): for one use, while
/// consecutive ops of a rank are of one stage and direction, or for the whole step.
enum class Reshard : std::uint8_t { kUnit, kChunk, kStep };

/// What forward does not keep but backward computes again: nothing, attention's output and
/// statistics, or all that a unit saves.
enum class Recompute : std::uint8_t { kNone, kSelective, kFull };
constexpr int kRecomputeCount = 3;
constexpr const char* recompute_name(Recompute r) {
  return r == Recompute::kNone ? "none" : r == Recompute::kSelective ? "selective" : "full";
}

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

constexpr int kMostPrefetch = 1024;

/// What lives in host memory instead of on the device.
struct Offload {
  bool optimizer = false;    // master weights and moments; the host makes the optimizer step
  bool activations = false;  // what blocks save for backward
  friend bool operator==(const Offload&, const Offload&) = default;
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
  Reshard reshard = Reshard::kUnit;
  /// Uses by which a ZeRO-3 gather, and units by which offloaded activations, come ahead.
  int prefetch = 1;
  Offload offload;
  /// ZeRO 3: parameter groups of up to this size stay whole on every rank, as under ZeRO 2.
  Bytes persistence_threshold;
  Recompute recompute = Recompute::kNone;
  std::vector<int> recompute_units;  // ascending; empty = every block
  int threads_per_rank = 1;
  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace bayplan
