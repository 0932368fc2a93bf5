// Plan ↔ JSON, version 1 (docs/plan-format.md). The file also writes out what the names in the
// plan stood for when it was made: the model's shape and the hardware; both may be left out, and
// are then looked up by name. Unknown fields are refused by name.
// Not for: whether the plan is legal (program/lower.h: check_plan).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "planner/core/plan.h"
#include "planner/core/result.h"
#include "planner/formats/cluster_json.h"
#include "planner/formats/hf_config.h"
#include "planner/formats/json_cursor.h"

namespace bayplan {

struct PlanFile {
  Plan plan;
  std::optional<ModelDescription> model;
  std::optional<Cluster> hardware;
};

Result<PlanFile> read_plan(const JsonCursor& at, const HardwareLookup& presets);
Result<PlanFile> read_plan_file(const std::string& path, const HardwareLookup& presets);
nlohmann::ordered_json write_plan(const PlanFile& file);

/// The job as plan files and reports show it, every default filled in.
nlohmann::ordered_json write_job(const TrainingJob& job);

}  // namespace bayplan
