// The layout that answers a request: searched for where decisions are open, verified, simulated,
// and judged against the memory of its devices. What `fit` and `plan` report and `run` trains.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "planner/core/plan.h"
#include "planner/program/program.h"
#include "planner/search/enumerate.h"
#include "simulator/engine/simulate.h"
#include "tools/bayplan/outcome.h"
#include "tools/bayplan/request.h"
#include "tools/bayplan/verdict.h"

namespace bayplan::cli {

struct Answer {
  Plan plan;
  Program program;
  std::vector<RankMemoryNeed> needs;  // per rank class
  double probability = 0.0;
  Verdict verdict = Verdict::kDoesNotFit;
  sim::SimulationResult simulation;
  SearchResult search;
  double search_seconds = 0.0;
};

/// Memory, verdict and step time of one lowered plan. A program that verify() refuses is an Error
/// of code "not-verified".
Result<Answer> judge_program(const Plan& plan, Program program, const Subject& subject,
                             bool timeline);

/// Searches what `request.space` leaves open. The fastest layout that surely fits, else the one
/// with the most room. Shows a progress bar.
Result<Answer> find_answer(const Request& request);

/// The keys that `fit`, `plan` and `simulate` share, in the order of the interface, without schema.
nlohmann::ordered_json answer_json(const Answer& answer, const Subject& subject,
                                   const std::string& model);
/// "search" of `plan`.
nlohmann::ordered_json search_json(const Answer& answer);
/// Verdict, layout, memory and step for people.
std::string answer_text(const Answer& answer, const Subject& subject);

/// 4 for a program that does not verify, else bad input.
Outcome outcome_of(const Error& error);

}  // namespace bayplan::cli
