#include "planner/formats/timeline_json.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <tuple>

#include "planner/formats/json_cursor.h"
#include "planner/formats/text_file.h"

namespace bayplan {
namespace {

using nlohmann::json;

constexpr const char* kSchema = "bayplan.timeline/1";

std::vector<std::string> program_names() {
  std::vector<std::string> names;
  for (int k = 0; k < kProgramKindCount; ++k) names.emplace_back(program_kind_name(static_cast<ProgramKind>(k)));
  return names;
}

Result<ProgramKind> read_program(const JsonCursor& at) {
  const std::vector<std::string> names = program_names();
  BAYPLAN_TRY(name, at.one_of(names));
  std::size_t k = 0;
  while (names[k] != name) ++k;
  return static_cast<ProgramKind>(k);
}

Result<std::uint64_t> read_fingerprint(const JsonCursor& at) {
  BAYPLAN_TRY(digits, at.string());
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (failed != std::errc() || end != digits.data() + digits.size() || digits.size() != 16) {
    return at.error("bad-fingerprint", "\"" + digits + "\" is not 16 hexadecimal digits",
                    "leave the file as it was written");
  }
  return value;
}

// Rows are read without a cursor each: a timeline has many. The error names the row.
Error row_error(const JsonCursor& list, std::size_t row, const std::string& message) {
  Error error = list.error("bad-row", message, "leave the file as it was written");
  error.where += "/" + std::to_string(row);
  return error;
}

/// Fills `out` from an array of non-negative integers.
template <std::size_t N>
bool read_integers(const json& row, std::array<std::int64_t, N>& out) {
  if (!row.is_array() || row.size() != N) return false;
  for (std::size_t i = 0; i < N; ++i) {
    if (!row[i].is_number_integer()) return false;
    out[i] = row[i].is_number_unsigned() && row[i].get<std::uint64_t>() > INT64_MAX ? -1
                                                                                    : row[i].get<std::int64_t>();
    if (out[i] < 0) return false;
  }
  return true;
}

Status read_events(const JsonCursor& at, const json& rows, Timeline& timeline) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::array<std::int64_t, 6> v{};
    if (!read_integers(rows[i], v) || v[0] > INT32_MAX || v[1] > INT32_MAX || v[2] > INT32_MAX) {
      return row_error(at, i, "is not [rank, step, instruction, ready, start, end] of non-negative integers");
    }
    if (v[5] < v[4]) return row_error(at, i, "ends before it starts");
    const TimelineEvent event{static_cast<std::int32_t>(v[0]),
                              static_cast<std::int32_t>(v[1]),
                              InstructionId(static_cast<std::int32_t>(v[2])),
                              Picoseconds(v[3]),
                              Picoseconds(v[4]),
                              Picoseconds(v[5])};
    if (!timeline.events.empty()) {
      const TimelineEvent& last = timeline.events.back();
      if (std::tie(event.step, event.rank, event.instruction) <= std::tie(last.step, last.rank, last.instruction)) {
        return row_error(at, i, "is out of order: rows ascend by step, rank and instruction");
      }
    }
    timeline.events.push_back(event);
  }
  return {};
}

Status read_memory(const JsonCursor& at, const json& rows, Timeline& timeline) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::array<std::int64_t, 4> v{};
    if (!read_integers(rows[i], v) || v[0] > INT32_MAX || v[1] >= kTierCount) {
      return row_error(at, i, "is not [rank, tier, time, bytes] of non-negative integers");
    }
    timeline.memory.push_back(
        {static_cast<std::int32_t>(v[0]), static_cast<Tier>(v[1]), Picoseconds(v[2]), v[3]});
  }
  return {};
}

Result<json> array_of(const JsonDocument& document, const JsonCursor& at, const char* name) {
  if (!at.is_array()) return at.error("wrong-type", "must be an array, is " + std::string(at.type_name()));
  return document.root->at(name);
}

}  // namespace

std::string timeline_text(const Timeline& timeline) {
  fmt::memory_buffer out;
  const auto sink = std::back_inserter(out);
  fmt::format_to(sink, "{{\"schema\":\"{}\",\"fingerprint\":\"{:016x}\",\"program\":\"{}\",\"measured\":{},\n",
                 kSchema, timeline.fingerprint, program_kind_name(timeline.program), timeline.measured);
  fmt::format_to(sink, "\"step_times\":[");
  const char* separator = "";
  for (const Picoseconds t : timeline.step_times) {
    fmt::format_to(sink, "{}{}", separator, t.value);
    separator = ",";
  }
  fmt::format_to(sink, "],\n\"events\":[");
  separator = "\n";
  for (const TimelineEvent& e : timeline.events) {
    fmt::format_to(sink, "{}[{},{},{},{},{},{}]", separator, e.rank, e.step, e.instruction.value, e.ready.value,
                   e.start.value, e.end.value);
    separator = ",\n";
  }
  fmt::format_to(sink, "],\n\"memory\":[");
  separator = "\n";
  for (const MemorySample& s : timeline.memory) {
    fmt::format_to(sink, "{}[{},{},{},{}]", separator, s.rank, static_cast<int>(s.tier), s.time.value, s.live_bytes);
    separator = ",\n";
  }
  fmt::format_to(sink, "]}}\n");
  return fmt::to_string(out);
}

Result<Timeline> parse_timeline(std::string_view text, const std::string& name) {
  BAYPLAN_TRY(document, parse_json(text, name));
  const JsonCursor root(document);
  Timeline timeline;
  std::string schema;
  json events = json::array();
  json memory = json::array();
  ObjectReader r(root);
  r.required("schema", schema, [](const JsonCursor& c) { return c.one_of({kSchema}); });
  r.required("fingerprint", timeline.fingerprint, read_fingerprint);
  r.required("program", timeline.program, read_program);
  r.required("measured", timeline.measured, [](const JsonCursor& c) { return c.boolean(); });
  r.required("step_times", timeline.step_times, [](const JsonCursor& c) -> Result<std::vector<Picoseconds>> {
    BAYPLAN_TRY(elements, c.elements());
    std::vector<Picoseconds> times;
    for (const JsonCursor& element : elements) {
      BAYPLAN_TRY(time, element.integer(0));
      times.emplace_back(time);
    }
    return times;
  });
  r.required("events", events, [&](const JsonCursor& c) { return array_of(document, c, "events"); });
  r.required("memory", memory, [&](const JsonCursor& c) { return array_of(document, c, "memory"); });
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  BAYPLAN_RETURN_IF_ERROR(read_events(root.at("events"), events, timeline));
  BAYPLAN_RETURN_IF_ERROR(read_memory(root.at("memory"), memory, timeline));
  return timeline;
}

Result<Timeline> read_timeline_file(const std::string& path) {
  BAYPLAN_TRY(text, read_text_file(path));
  return parse_timeline(text, path);
}

Status write_timeline_file(const std::string& path, const Timeline& timeline) {
  return write_text_file(path, timeline_text(timeline));
}

}  // namespace bayplan
