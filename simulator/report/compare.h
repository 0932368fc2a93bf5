// Predicted against measured: where was the prediction wrong? Both timelines name the same
// instructions, so this is a join. Not for: judging many runs (validate).
#pragma once

#include <string>
#include <vector>

#include "planner/core/result.h"
#include "planner/core/units.h"
#include "planner/program/timeline.h"

namespace bayplan::sim {

/// One instruction kind, stream or rank: mean per step of the time its instructions ran, summed
/// over what the row covers.
struct ComparisonRow {
  std::string name;
  std::int64_t instructions = 0;  // per step
  Seconds predicted;
  Seconds measured;
  /// predicted / measured; 0 when nothing was measured.
  double ratio() const { return measured.value > 0.0 ? predicted.value / measured.value : 0.0; }
};

struct Comparison {
  Seconds predicted_step;            // mean of the predicted steps
  Seconds measured_step;             // median of the measured steps
  std::vector<ComparisonRow> kinds;  // in the order of InstructionKind, those that ran
  std::vector<ComparisonRow> streams;
  std::vector<ComparisonRow> ranks;
  double step_ratio() const {
    return measured_step.value > 0.0 ? predicted_step.value / measured_step.value : 0.0;
  }
};

/// Error "different-programs" when the fingerprints or the sub-programs differ, "empty-timeline"
/// when one has no events. `labels` are those of either, which then are the same.
Result<Comparison> compare_timelines(const TimelineLabels& labels, const Timeline& predicted,
                                     const Timeline& measured);

/// Three tables and the step.
std::string comparison_text(const Comparison& comparison);

}  // namespace bayplan::sim
