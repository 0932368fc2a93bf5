#include "models/runtimes.h"

#include <fmt/format.h>

#include "models/embedded.h"
#include "models/preset_names.h"
#include "planner/formats/json_cursor.h"
#include "planner/formats/nearest.h"

namespace bayplan {
namespace {

constexpr std::string_view kRuntimeFolder = "models/runtimes/";

Result<std::vector<std::string>> read_texts(const JsonCursor& at) {
  BAYPLAN_TRY(elements, at.elements());
  std::vector<std::string> out;
  for (const JsonCursor& element : elements) {
    BAYPLAN_TRY(text, element.string());
    out.push_back(text);
  }
  return out;
}

Result<std::vector<std::int64_t>> read_counts(const JsonCursor& at) {
  BAYPLAN_TRY(elements, at.elements());
  std::vector<std::int64_t> out;
  for (const JsonCursor& element : elements) {
    BAYPLAN_TRY(count, element.integer(0, 1000));
    out.push_back(count);
  }
  return out;
}

Result<RuntimeDescription> read_runtime(const JsonCursor& at) {
  RuntimeDescription runtime;
  const auto text = [](const JsonCursor& c) { return c.string(); };
  std::string schema;
  bool done = false;
  ObjectReader r(at);
  r.required("schema", schema, [](const JsonCursor& c) { return c.one_of({"bayplan.runtime/1"}); });
  r.required("name", runtime.name, text);
  r.required("description", runtime.description, text);
  r.required("precisions", runtime.precisions, read_texts);
  r.required("zero", runtime.zero, read_counts);
  r.required("schedules", runtime.schedules, read_texts);
  r.required("device_overhead", done, [&](const JsonCursor& c) -> Result<bool> {
    ObjectReader overhead(c);
    const auto bytes = [](const JsonCursor& b) { return b.bytes(Zero::kAllowed); };
    overhead.required("below", runtime.overhead_below, bytes);
    overhead.required("above", runtime.overhead_above, bytes);
    BAYPLAN_RETURN_IF_ERROR(overhead.finish());
    return true;
  });
  r.required("source", runtime.source, text);
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  return runtime;
}

}  // namespace

const std::vector<std::string>& runtime_names() {
  static const std::vector<std::string> names = preset_names(kRuntimeFolder);
  return names;
}

Result<RuntimeDescription> find_runtime(std::string_view name) {
  if (const EmbeddedFile* file = find_preset_file(kRuntimeFolder, name)) {
    BAYPLAN_TRY(document, parse_json(file->text, std::string(file->path)));
    return read_runtime(JsonCursor(document));
  }
  return Error{"unknown-preset", fmt::format("no runtime is called '{}'", name.substr(0, 80)),
               "--runtime",
               fmt::format("nearest: '{}'; 'bayplan presets runtimes' lists all",
                           nearest_name(name, runtime_names()))};
}

}  // namespace bayplan
