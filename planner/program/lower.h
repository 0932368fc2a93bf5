// lower(): Plan + ModelGraph + Cluster → Program. Deterministic, and the only producer of
// Programs. It runs named passes in a fixed order; docs/program.md lists them.
#pragma once

#include <span>

#include "planner/core/cluster.h"
#include "planner/core/model_graph.h"
#include "planner/core/plan.h"
#include "planner/core/result.h"
#include "planner/program/program.h"
#include "planner/schedule/schedule.h"

namespace bayplan {

/// Checks the plan against graph and cluster, then lowers it. Errors name the plan field. `known`:
/// the schedules that the plan may name; "table" is known besides.
Result<Program> lower(const Plan& plan, const ModelGraph& graph, const Cluster& cluster,
                      std::span<const ScheduleSpec> known = schedules());

/// The checks that lower() starts with: degrees against the device count, units against stages,
/// batch against replicas and micro-batches, heads, unsupported combinations.
Status check_plan(const Plan& plan, const ModelGraph& graph, const Cluster& cluster);

/// `stages` entries that split the graph's units so that stages have about equal forward work.
std::vector<StagePlan> even_stages(const ModelGraph& graph, int stages, int zero);

}  // namespace bayplan
