// JSON that scripts read, and the tables that people read, for what several commands report. One
// place, so that `fit`, `plan` and `simulate` agree key by key. Not for: exit codes and files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "planner/core/cluster.h"
#include "planner/core/plan.h"
#include "planner/program/program.h"
#include "planner/search/memory_fit.h"
#include "simulator/engine/simulate.h"
#include "tools/bayplan/request.h"
#include "tools/bayplan/verdict.h"

namespace bayplan::cli {

nlohmann::ordered_json model_json(const Subject& subject, const std::string& name);
nlohmann::ordered_json layout_json(const Plan& plan);
nlohmann::ordered_json cluster_json(const Cluster& cluster);
nlohmann::ordered_json memory_json(const RankMemoryNeed& need);
nlohmann::ordered_json host_json(const std::vector<RankMemoryNeed>& needs, const Program& program,
                                 const Cluster& cluster);
nlohmann::ordered_json step_json(const sim::SimulationResult& result, const Cluster& cluster);
nlohmann::ordered_json assumptions_json(const std::vector<Assumption>& assumptions);
std::string fingerprint_text(std::uint64_t fingerprint);

/// One line that names the decisions: "pp 2 x dp 2, micro-batch 1, ZeRO 0, 1f1b, bf16".
std::string layout_text(const Plan& plan);
/// Peak per rank class, with its largest terms.
std::string memory_table(const std::vector<RankMemoryNeed>& needs);
/// Warnings and assumptions, one a line; "" when there are none.
std::string notes_text(const Subject& subject);

/// Prints the object as the only thing on stdout.
void print_json(const nlohmann::ordered_json& object);

}  // namespace bayplan::cli
