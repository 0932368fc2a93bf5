// A Timeline as a trace that ui.perfetto.dev and chrome://tracing open: a process per rank, a
// track per stream, counters of live bytes per tier, and an arrow from every send to its receive.
// Works for predicted and measured timelines. Not for: reading traces back (formats/timeline_json).
#pragma once

#include <string>

#include "planner/program/program.h"
#include "planner/program/timeline.h"

namespace bayplan::sim {

/// JSON in the Trace Event Format (Google, 2016): complete events ("X") with microseconds,
/// counters ("C"), flows ("s", "f") and names ("M"). Releases have no slice: the counters show
/// them.
std::string perfetto_trace(const Program& program, const Timeline& timeline);

}  // namespace bayplan::sim
