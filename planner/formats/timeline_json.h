// Timeline ↔ JSON, "bayplan.timeline/1", for predicted and measured timelines alike. Events are
// rows [rank, step, instruction, ready, start, end] and memory samples [rank, tier, time, bytes];
// times are picoseconds, the fingerprint is 16 hexadecimal digits.
// Not for: traces that a viewer opens (simulator/report/perfetto.h).
#pragma once

#include <string>
#include <string_view>

#include "planner/core/result.h"
#include "planner/program/timeline.h"

namespace bayplan {

/// Reads back as an equal timeline.
std::string timeline_text(const Timeline& timeline);

/// `name` is the file, for errors. Refused besides wrong types: events out of order (step, rank,
/// instruction ascending), ends before starts, negative times.
Result<Timeline> parse_timeline(std::string_view text, const std::string& name);
Result<Timeline> read_timeline_file(const std::string& path);
Status write_timeline_file(const std::string& path, const Timeline& timeline);

}  // namespace bayplan
