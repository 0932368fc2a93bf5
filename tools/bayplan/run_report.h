// What a run measured, beside what was predicted. Not for: running (run.cpp).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "executor/run.h"
#include "tools/bayplan/answer.h"

namespace bayplan::cli {

/// Median and minimum of the steady steps: all but the first, which warms caches and allocates.
struct StepSeconds {
  double median = 0.0;
  double min = 0.0;
};
StepSeconds steady_steps(const std::vector<double>& step_seconds);

/// "bayplan.run/1". `timeline` is the file that was written, "" = none.
nlohmann::ordered_json run_json(const exec::RunResult& result, const Answer& answer,
                                const std::string& timeline);
std::string run_text(const exec::RunResult& result, const Answer& answer);

}  // namespace bayplan::cli
