// A pipeline schedule as a table: one line per rank, cells in time order, separated by commas. A
// cell is STAGE KIND MICROBATCH with kind F, B (full backward), I (backward_input) or W
// (backward_weight), as 0F3, 1I2; empty is idle; (0F3;1B2)OVERLAP_F_B is a pair. The format is
// what torchtitan writes for compute-only schedules.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/schedule/schedule.h"

namespace bayplan {

/// The cell of one op, e.g. "2I5".
std::string op_text(const ScheduleOp& op);

/// One line per rank, without idle cells.
std::vector<std::string> table_lines(const Schedule& schedule);

/// Reads a table; the inverse of table_lines. A stage is on the rank whose line names it. Errors
/// "bad-schedule-table" with line and cell; whether the schedule is whole and free of deadlock is
/// check_schedule's business.
Result<Schedule> schedule_of_table(std::span<const std::string> lines);

/// Lines of a file's text: line ends \n or \r\n; empty lines at the end are dropped.
std::vector<std::string> split_table(std::string_view text);

}  // namespace bayplan
