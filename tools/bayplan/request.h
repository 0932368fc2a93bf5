// What a command line asks for, understood: model, hardware, job, and which decisions of the
// layout are fixed. Also plan files, which bring all of that along. Not for: searching.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner/core/cluster.h"
#include "planner/core/model_graph.h"
#include "planner/core/plan.h"
#include "planner/core/result.h"
#include "planner/cost/calibration.h"
#include "planner/formats/hf_config.h"
#include "planner/formats/plan_json.h"
#include "planner/program/program.h"
#include "planner/search/enumerate.h"
#include "tools/bayplan/given_options.h"

namespace bayplan::cli {

/// Something that the user did not say, or that nobody measured.
struct Assumption {
  std::string what;
  std::string value;
  std::string source;  // specification | calibrated | measured | default
};

/// What both MODEL CLUSTER and a plan file come to.
struct Subject {
  ModelDescription model;
  ModelGraph graph;
  Cluster cluster;
  std::shared_ptr<const Calibration> calibration;  // of this machine, when the cluster is it
  std::vector<Assumption> assumptions;
  std::vector<std::string> warnings;
};

struct Request {
  Subject subject;
  Plan base;  // the job; layout fields are those of `space` or are searched
  SearchSpace space;
};

/// MODEL CLUSTER and options. kFixed: what is not given takes the fixed defaults, only "auto"
/// opens a decision; kSearched: what is not given is open.
Result<Request> make_request(const GivenOptions& given, Defaults defaults);

struct LoadedPlan {
  Subject subject;
  Plan plan;
  Program program;  // lowered, not verified
};

/// A plan file, on the cluster that it names or on `cluster` (CLUSTER as typed, "" = its own).
/// Errors: "plan-for-another-model" when MODEL means another shape than the file wrote down.
Result<LoadedPlan> load_plan(const std::string& path, const std::string& cluster,
                             const GivenOptions& given);

}  // namespace bayplan::cli
