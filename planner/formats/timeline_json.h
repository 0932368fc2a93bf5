// Timeline ↔ JSON, "bayplan.timeline/1", for predicted and measured timelines alike. Events are
// rows [rank, step, instruction, ready, start, end], memory samples [rank, tier, time, bytes] and
// labels of instructions [kind, stream]; times are picoseconds, the fingerprint is 16 hexadecimal
// digits.
// Not for: traces that a viewer opens (simulator/report/perfetto.h).
#pragma once

#include <string>
#include <string_view>

#include "planner/core/result.h"
#include "planner/program/timeline.h"

namespace bayplan {

struct TimelineFile {
  Timeline timeline;
  TimelineLabels labels;
};

/// Reads back as an equal timeline.
std::string timeline_text(const Timeline& timeline, const TimelineLabels& labels);

/// `name` is the file, for errors. Refused besides wrong types: events out of order (step, rank,
/// instruction ascending), of unknown ranks or instructions, or that end before they start;
/// negative times.
Result<TimelineFile> parse_timeline(std::string_view text, const std::string& name);
Result<TimelineFile> read_timeline_file(const std::string& path);
Status write_timeline_file(const std::string& path, const Timeline& timeline,
                           const Program& program);

}  // namespace bayplan
