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

constexpr const char* kTimelineSchema = "bayplan.timeline/1";

std::vector<std::string> program_names() {
  std::vector<std::string> names;
  for (int k = 0; k < kProgramKindCount; ++k)
    names.emplace_back(program_kind_name(static_cast<ProgramKind>(k)));
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
  const auto [end, failed] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
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
    out[i] = row[i].is_number_unsigned() && row[i].get<std::uint64_t>() > INT64_MAX
                 ? -1
                 : row[i].get<std::int64_t>();
    if (out[i] < 0) return false;
  }
  return true;
}

bool known(const TimelineLabels& labels, std::int64_t rank, std::int64_t instruction) {
  if (rank >= static_cast<std::int64_t>(labels.rank_class.size())) return false;
  const auto c = static_cast<std::size_t>(labels.rank_class[static_cast<std::size_t>(rank)]);
  return instruction < static_cast<std::int64_t>(labels.classes[c].size());
}

Status read_events(const JsonCursor& at, const json& rows, const TimelineLabels& labels,
                   Timeline& timeline) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::array<std::int64_t, 6> v{};
    if (!read_integers(rows[i], v) || v[1] > INT32_MAX) {
      return row_error(
          at, i, "is not [rank, step, instruction, ready, start, end] of non-negative integers");
    }
    if (!known(labels, v[0], v[2]))
      return row_error(at, i, "names a rank or an instruction that has no label");
    if (v[5] < v[4]) return row_error(at, i, "ends before it starts");
    const TimelineEvent event{static_cast<std::int32_t>(v[0]),
                              static_cast<std::int32_t>(v[1]),
                              InstructionId(static_cast<std::int32_t>(v[2])),
                              Picoseconds(v[3]),
                              Picoseconds(v[4]),
                              Picoseconds(v[5])};
    if (!timeline.events.empty()) {
      const TimelineEvent& last = timeline.events.back();
      if (std::tie(event.step, event.rank, event.instruction) <=
          std::tie(last.step, last.rank, last.instruction)) {
        return row_error(at, i, "is out of order: rows ascend by step, rank and instruction");
      }
    }
    timeline.events.push_back(event);
  }
  return {};
}

Status read_memory(const JsonCursor& at, const json& rows, const TimelineLabels& labels,
                   Timeline& timeline) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::array<std::int64_t, 4> v{};
    if (!read_integers(rows[i], v) || v[0] >= static_cast<std::int64_t>(labels.rank_class.size()) ||
        v[1] >= kTierCount) {
      return row_error(at, i, "is not [rank, tier, time, bytes] of non-negative integers");
    }
    timeline.memory.push_back(
        {static_cast<std::int32_t>(v[0]), static_cast<Tier>(v[1]), Picoseconds(v[2]), v[3]});
  }
  return {};
}

template <class Enum>
Enum enumerator(const std::vector<std::string>& names, const std::string& name) {
  std::size_t i = 0;
  while (names[i] != name) ++i;
  return static_cast<Enum>(i);
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (int k = 0; k < kInstructionKindCount; ++k)
    names.emplace_back(instruction_name(static_cast<InstructionKind>(k)));
  return names;
}

std::vector<std::string> stream_names() {
  std::vector<std::string> names;
  for (int s = 0; s < kStreamCount; ++s) names.emplace_back(stream_name(static_cast<Stream>(s)));
  return names;
}

Result<std::vector<std::vector<InstructionLabel>>> read_classes(const JsonCursor& at) {
  const std::vector<std::string> kinds = kind_names();
  const std::vector<std::string> streams = stream_names();
  BAYPLAN_TRY(classes, at.elements());
  std::vector<std::vector<InstructionLabel>> out;
  for (const JsonCursor& c : classes) {
    BAYPLAN_TRY(rows, c.elements());
    std::vector<InstructionLabel>& labels = out.emplace_back();
    for (const JsonCursor& row : rows) {
      BAYPLAN_TRY(pair, row.elements());
      if (pair.size() != 2)
        return row.error("bad-row", "is not [kind, stream]", "leave the file as it was written");
      BAYPLAN_TRY(kind, pair[0].one_of(kinds));
      BAYPLAN_TRY(stream, pair[1].one_of(streams));
      labels.push_back(
          {enumerator<InstructionKind>(kinds, kind), enumerator<Stream>(streams, stream)});
    }
  }
  return out;
}

/// Classes of the ranks; which of them exist is checked later.
Result<std::vector<std::int32_t>> read_rank_classes(const JsonCursor& at) {
  BAYPLAN_TRY(elements, at.elements());
  std::vector<std::int32_t> out;
  for (const JsonCursor& element : elements) {
    BAYPLAN_TRY(value, element.integer(0, INT32_MAX));
    out.push_back(static_cast<std::int32_t>(value));
  }
  return out;
}

Result<json> array_of(const JsonDocument& document, const JsonCursor& at, const char* name) {
  if (!at.is_array())
    return at.error("wrong-type", "must be an array, is " + std::string(at.type_name()));
  return document.root->at(name);
}

}  // namespace

std::string timeline_text(const Timeline& timeline, const TimelineLabels& labels) {
  fmt::memory_buffer out;
  const auto sink = std::back_inserter(out);
  fmt::format_to(
      sink, "{{\"schema\":\"{}\",\"fingerprint\":\"{:016x}\",\"program\":\"{}\",\"measured\":{},\n",
      kTimelineSchema, timeline.fingerprint, program_kind_name(timeline.program),
      timeline.measured);
  fmt::format_to(sink, "\"step_times\":[");
  const char* separator = "";
  for (const Picoseconds t : timeline.step_times) {
    fmt::format_to(sink, "{}{}", separator, t.value);
    separator = ",";
  }
  fmt::format_to(sink, "],\n\"rank_class\":[{}],\n\"instructions\":[",
                 fmt::join(labels.rank_class, ","));
  separator = "\n";
  for (const std::vector<InstructionLabel>& c : labels.classes) {
    fmt::format_to(sink, "{}[", separator);
    const char* comma = "";
    for (const InstructionLabel& label : c) {
      fmt::format_to(sink, "{}[\"{}\",\"{}\"]", comma, instruction_name(label.kind),
                     stream_name(label.stream));
      comma = ",";
    }
    fmt::format_to(sink, "]");
    separator = ",\n";
  }
  fmt::format_to(sink, "],\n\"events\":[");
  separator = "\n";
  for (const TimelineEvent& e : timeline.events) {
    fmt::format_to(sink, "{}[{},{},{},{},{},{}]", separator, e.rank, e.step, e.instruction.value,
                   e.ready.value, e.start.value, e.end.value);
    separator = ",\n";
  }
  fmt::format_to(sink, "],\n\"memory\":[");
  separator = "\n";
  for (const MemorySample& s : timeline.memory) {
    fmt::format_to(sink, "{}[{},{},{},{}]", separator, s.rank, static_cast<int>(s.tier),
                   s.time.value, s.live_bytes);
    separator = ",\n";
  }
  fmt::format_to(sink, "]}}\n");
  return fmt::to_string(out);
}

Result<TimelineFile> parse_timeline(std::string_view text, const std::string& name) {
  BAYPLAN_TRY(document, parse_json(text, name));
  const JsonCursor root(document);
  TimelineFile file;
  Timeline& timeline = file.timeline;
  std::string schema;
  json events = json::array();
  json memory = json::array();
  ObjectReader r(root);
  r.required("schema", schema, [](const JsonCursor& c) { return c.one_of({kTimelineSchema}); });
  r.required("fingerprint", timeline.fingerprint, read_fingerprint);
  r.required("program", timeline.program, read_program);
  r.required("measured", timeline.measured, [](const JsonCursor& c) { return c.boolean(); });
  r.required("step_times", timeline.step_times,
             [](const JsonCursor& c) -> Result<std::vector<Picoseconds>> {
               BAYPLAN_TRY(elements, c.elements());
               std::vector<Picoseconds> times;
               for (const JsonCursor& element : elements) {
                 BAYPLAN_TRY(time, element.integer(0));
                 times.emplace_back(time);
               }
               return times;
             });
  r.required("rank_class", file.labels.rank_class, read_rank_classes);
  r.required("instructions", file.labels.classes, read_classes);
  r.required("events", events,
             [&](const JsonCursor& c) { return array_of(document, c, "events"); });
  r.required("memory", memory,
             [&](const JsonCursor& c) { return array_of(document, c, "memory"); });
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  for (const std::int32_t c : file.labels.rank_class) {
    if (static_cast<std::size_t>(c) < file.labels.classes.size()) continue;
    return root.at("rank_class")
        .error("out-of-range", fmt::format("there is no class {}", c),
               "leave the file as it was written");
  }
  BAYPLAN_RETURN_IF_ERROR(read_events(root.at("events"), events, file.labels, timeline));
  BAYPLAN_RETURN_IF_ERROR(read_memory(root.at("memory"), memory, file.labels, timeline));
  return file;
}

Result<TimelineFile> read_timeline_file(const std::string& path) {
  BAYPLAN_TRY(text, read_text_file(path));
  return parse_timeline(text, path);
}

Status write_timeline_file(const std::string& path, const Timeline& timeline,
                           const Program& program) {
  return write_text_file(path, timeline_text(timeline, timeline_labels(program, timeline.program)));
}

}  // namespace bayplan
