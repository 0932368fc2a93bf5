#include "planner/formats/json_cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "planner/formats/nearest.h"
#include "planner/formats/text_file.h"

namespace bayplan {
namespace {

constexpr int kDeepestNesting = 64;

/// "line:column", both from 1, of byte `offset`.
std::string line_and_column(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t line_start =
      before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("{}:{}", line, offset - line_start + 1);
}

/// Refuses what the grammar allows but no reader may guess about. Thrown through the parser.
struct Refused {
  std::string code;
  std::string message;
};

/// JSON pointer token escape.
std::string escaped(std::string_view token) {
  std::string out;
  for (const char c : token) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Result<JsonDocument> parse_json(std::string_view text, const std::string& name) {
  using nlohmann::json;
  std::vector<std::set<std::string>> keys;
  const json::parser_callback_t watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepestNesting) {
      throw Refused{"malformed-json", fmt::format("nesting is deeper than {}", kDeepestNesting)};
    }
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        throw Refused{"duplicate-field",
                      fmt::format("field '{}' appears twice in one object", key)};
      }
    }
    return true;
  };
  try {
    return json_document(json::parse(text.begin(), text.end(), watch), name);
  } catch (const json::parse_error& e) {
    // The parser reports the byte after the one that it could not use.
    const std::size_t offset = e.byte > 0 ? e.byte - 1 : 0;
    const std::string where = fmt::format("{}:{}", name, line_and_column(text, offset));
    const std::size_t last = text.find_last_not_of(" \t\r\n");
    if (last == std::string_view::npos) {
      return Error{"truncated-json", "the file is empty", where, "a JSON object is expected"};
    }
    if (offset > last) {
      return Error{"truncated-json", "the file ends in the middle of a value", where,
                   "write or copy the file again"};
    }
    return Error{"malformed-json", fmt::format("not JSON from here: '{}'", text.substr(offset, 1)),
                 where, "check quotes, commas and brackets around this place"};
  } catch (const json::exception& e) {
    return Error{"malformed-json", "a number is out of range", name, "write a smaller number"};
  } catch (const Refused& refused) {
    return Error{refused.code, refused.message, name, "keep one"};
  }
}

Result<JsonDocument> read_json_file(const std::string& path) {
  BAYPLAN_TRY(text, read_text_file(path));
  return parse_json(text, path);
}

JsonDocument json_document(nlohmann::json value, const std::string& name) {
  return JsonDocument{std::make_shared<const nlohmann::json>(std::move(value)),
                      std::make_shared<const std::string>(name)};
}

JsonCursor::JsonCursor(const JsonDocument& document)
    : root_(document.root), name_(document.name), value_(document.root.get()) {}

JsonCursor::JsonCursor(const JsonCursor& parent, const nlohmann::json& value,
                       const std::string& step)
    : root_(parent.root_),
      name_(parent.name_),
      value_(&value),
      pointer_(parent.pointer_ + "/" + step) {}

std::string JsonCursor::where() const {
  return pointer_.empty() ? *name_ : *name_ + ":" + pointer_;
}

Error JsonCursor::error(std::string code, std::string message, std::string hint) const {
  return Error{std::move(code), std::move(message), where(), std::move(hint)};
}

bool JsonCursor::is_object() const { return value_->is_object(); }
bool JsonCursor::is_array() const { return value_->is_array(); }
bool JsonCursor::is_string() const { return value_->is_string(); }
bool JsonCursor::is_number() const { return value_->is_number(); }
bool JsonCursor::is_boolean() const { return value_->is_boolean(); }
bool JsonCursor::is_null() const { return value_->is_null(); }

std::string_view JsonCursor::type_name() const {
  if (is_object()) return "an object";
  if (is_array()) return "an array";
  if (is_string()) return "a string";
  if (value_->is_number_integer()) return "an integer";
  if (is_number()) return "a number";
  if (is_boolean()) return "a boolean";
  return "null";
}

Status JsonCursor::expect_object() const {
  if (is_object()) return {};
  return error("wrong-type", fmt::format("expected an object, found {}", type_name()),
               "write {\"field\": value, ...}");
}

Result<std::vector<JsonCursor>> JsonCursor::elements() const {
  if (!is_array())
    return error("wrong-type", fmt::format("expected an array, found {}", type_name()),
                 "write [value, ...]");
  std::vector<JsonCursor> out;
  out.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    out.push_back(JsonCursor(*this, (*value_)[i], std::to_string(i)));
  }
  return out;
}

std::vector<std::string> JsonCursor::field_names() const {
  std::vector<std::string> names;
  if (!is_object()) return names;
  for (const auto& item : value_->items()) names.push_back(item.key());
  return names;
}

bool JsonCursor::has(std::string_view name) const {
  return is_object() && value_->find(std::string(name)) != value_->end();
}

JsonCursor JsonCursor::at(std::string_view name) const {
  BAYPLAN_CHECK(has(name), std::string(name));
  return JsonCursor(*this, value_->at(std::string(name)), escaped(name));
}

Result<std::int64_t> JsonCursor::integer(std::int64_t least, std::int64_t most) const {
  if (!is_number())
    return error("wrong-type", fmt::format("expected an integer, found {}", type_name()),
                 "write a whole number without quotes or unit");
  const auto refuse = [&] {
    return error("out-of-range", fmt::format("{} is outside [{}, {}]", value_->dump(), least, most),
                 fmt::format("write a number from {} to {}", least, most));
  };
  if (value_->is_number_unsigned()) {
    const auto value = value_->get<std::uint64_t>();
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return refuse();
  } else if (!value_->is_number_integer()) {
    // Some writers print 16.0; a fraction, or a value past 2^53 that lost digits, is refused.
    const auto value = value_->get<double>();
    if (std::abs(value) > 9007199254740992.0) return refuse();
    if (value != std::trunc(value)) {
      return error("wrong-type", fmt::format("expected an integer, found {}", value_->dump()),
                   "write a whole number");
    }
  }
  const auto value = value_->get<std::int64_t>();
  if (value < least || value > most) return refuse();
  return value;
}

Result<double> JsonCursor::number(double least, double most) const {
  if (!is_number())
    return error("wrong-type", fmt::format("expected a number, found {}", type_name()),
                 "write a number without quotes or unit");
  const auto value = value_->get<double>();
  if (!(value >= least && value <= most)) {
    return error("out-of-range", fmt::format("{} is outside [{}, {}]", value_->dump(), least, most),
                 fmt::format("write a number from {} to {}", least, most));
  }
  return value;
}

Result<bool> JsonCursor::boolean() const {
  if (!is_boolean()) {
    return error("wrong-type", fmt::format("expected true or false, found {}", type_name()),
                 "write true or false without quotes");
  }
  return value_->get<bool>();
}

Result<std::string> JsonCursor::string() const {
  if (!is_string())
    return error("wrong-type", fmt::format("expected a string, found {}", type_name()),
                 "write text in double quotes");
  return value_->get<std::string>();
}

Result<std::string> JsonCursor::one_of(const std::vector<std::string>& known) const {
  BAYPLAN_TRY(text, string());
  if (std::find(known.begin(), known.end(), text) != known.end()) return text;
  return error(
      "unknown-value", fmt::format("'{}' is not known here", text.substr(0, 60)),
      fmt::format("nearest: '{}'; known: {}", nearest_name(text, known), fmt::join(known, ", ")));
}

Result<std::string> JsonCursor::quantity_text() const {
  if (is_string()) return value_->get<std::string>();
  return error("wrong-type", fmt::format("expected a string with a unit, found {}", type_name()),
               "numbers with a dimension are written with their unit, as \"80GiB\" or \"25us\"");
}

Result<Bytes> JsonCursor::bytes(Zero zero) const {
  BAYPLAN_TRY(text, quantity_text());
  return parse_bytes(text, where(), zero);
}
Result<BytesPerSecond> JsonCursor::rate(Zero zero) const {
  BAYPLAN_TRY(text, quantity_text());
  return parse_rate(text, where(), zero);
}
Result<Seconds> JsonCursor::duration(Zero zero) const {
  BAYPLAN_TRY(text, quantity_text());
  return parse_duration(text, where(), zero);
}
Result<FlopPerSecond> JsonCursor::flop_rate() const {
  BAYPLAN_TRY(text, quantity_text());
  return parse_flop_rate(text, where());
}
Result<double> JsonCursor::watts() const {
  BAYPLAN_TRY(text, quantity_text());
  return parse_watts(text, where());
}
Result<double> JsonCursor::price() const {
  BAYPLAN_TRY(text, quantity_text());
  return parse_price(text, where());
}

ObjectReader::ObjectReader(const JsonCursor& at) : at_(at), is_object_(at.is_object()) {
  if (Status status = at.expect_object(); !status) first_error_ = status;
}

bool ObjectReader::announce(std::string_view name) {
  known_.emplace_back(name);
  return first_error_.ok() && at_.has(name);
}

void ObjectReader::missing(std::string_view name) {
  fail(at_.error("missing-field", fmt::format("field '{}' is missing", name), "add it"));
}

void ObjectReader::fail(Error error) {
  if (first_error_.ok()) first_error_ = std::move(error);
}

Status ObjectReader::finish() const {
  if (is_object_) {
    for (const std::string& name : at_.field_names()) {
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      const std::string nearest = nearest_name(name, known_);
      return at_.error("unknown-field", fmt::format("unknown field '{}'", name.substr(0, 60)),
                       fmt::format("nearest known field: '{}'", nearest));
    }
  }
  return first_error_;
}

}  // namespace bayplan
