#include "planner/schedule/table.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

namespace bayplan {
namespace {

constexpr std::string_view kLetters = "FBIW";  // in the order of ScheduleOpKind
constexpr int kLargestNumber = 1'000'000;

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

/// A number at the front of `text`, taken off it.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > kLargestNumber) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::optional<ScheduleOp> parse_op(std::string_view cell) {
  const auto stage = take_number(cell);
  if (!stage || cell.empty()) return std::nullopt;
  const std::size_t kind = kLetters.find(cell.front());
  if (kind == std::string_view::npos) return std::nullopt;
  cell.remove_prefix(1);
  const auto micro_batch = take_number(cell);
  if (!micro_batch || !cell.empty()) return std::nullopt;
  return ScheduleOp{static_cast<ScheduleOpKind>(kind), *stage, *micro_batch};
}

/// The ops of one cell: none, one, or an overlapped pair.
std::optional<std::vector<ScheduleOp>> parse_cell(std::string_view cell) {
  constexpr std::string_view kPair = ")OVERLAP_F_B";
  std::vector<ScheduleOp> ops;
  if (cell.empty()) return ops;
  if (cell.front() == '(') {
    const std::size_t middle = cell.find(';');
    if (middle == std::string_view::npos || !cell.ends_with(kPair)) return std::nullopt;
    const auto first = parse_op(trimmed(cell.substr(1, middle - 1)));
    const auto second =
        parse_op(trimmed(cell.substr(middle + 1, cell.size() - kPair.size() - middle - 1)));
    if (!first || !second) return std::nullopt;
    return std::vector<ScheduleOp>{*first, *second};
  }
  const auto op = parse_op(cell);
  if (!op) return std::nullopt;
  ops.push_back(*op);
  return ops;
}

Error table_error(std::size_t line, std::string message, std::string hint) {
  return {"bad-schedule-table", std::move(message), "--schedule, line " + std::to_string(line + 1),
          std::move(hint)};
}

}  // namespace

std::string op_text(const ScheduleOp& op) {
  return std::to_string(op.stage) + kLetters[static_cast<std::size_t>(op.kind)] +
         std::to_string(op.micro_batch);
}

std::vector<std::string> table_lines(const Schedule& schedule) {
  std::vector<std::string> lines;
  for (const auto& ops : schedule.rank_ops) {
    std::string line;
    for (const ScheduleOp& op : ops) line += (line.empty() ? "" : ",") + op_text(op);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> split_table(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(trimmed(text.substr(0, end)));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

Result<Schedule> schedule_of_table(std::span<const std::string> lines) {
  Schedule schedule;
  for (std::size_t r = 0; r < lines.size(); ++r) {
    std::vector<ScheduleOp> ops;
    std::string_view rest = lines[r];
    for (int cell = 1;; ++cell) {
      const std::size_t end = std::min(rest.find(','), rest.size());
      const std::string_view text = trimmed(rest.substr(0, end));
      const auto parsed = parse_cell(text);
      if (!parsed) {
        return table_error(
            r, "cell " + std::to_string(cell) + " is \"" + std::string(text.substr(0, 40)) + "\"",
            "write stage, F, B, I or W, and micro-batch, as in 0F3");
      }
      for (const ScheduleOp& op : *parsed) {
        const auto s = static_cast<std::size_t>(op.stage);
        if (s >= schedule.stage_rank.size()) schedule.stage_rank.resize(s + 1, -1);
        int& rank = schedule.stage_rank[s];
        if (rank >= 0 && rank != static_cast<int>(r)) {
          return table_error(
              r,
              "stage " + std::to_string(op.stage) + " is on rank " + std::to_string(rank) + " too",
              "keep all ops of a stage on one line");
        }
        rank = static_cast<int>(r);
        ops.push_back(op);
      }
      if (end == rest.size()) break;
      rest.remove_prefix(end + 1);
    }
    schedule.rank_ops.push_back(std::move(ops));
  }
  const auto absent = std::find(schedule.stage_rank.begin(), schedule.stage_rank.end(), -1);
  if (absent != schedule.stage_rank.end()) {
    return table_error(
        0, "stage " + std::to_string(absent - schedule.stage_rank.begin()) + " is on no rank",
        "number the stages from 0 without gaps");
  }
  return schedule;
}

}  // namespace bayplan
