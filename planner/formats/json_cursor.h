// Strict reading of JSON: every error names the file, the place (line:column for broken syntax, a
// JSON pointer for wrong content) and a hint; unknown fields are refused with the nearest known
// name. Not for: writing JSON (use nlohmann::ordered_json in the writer's .cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "planner/core/result.h"
#include "planner/formats/quantity.h"

namespace bayplan {

/// A parsed text that keeps its name for errors. Shared, so cursors into it may outlive the
/// variable that read it.
struct JsonDocument {
  std::shared_ptr<const nlohmann::json> root;
  std::shared_ptr<const std::string> name;  // file path, or what stands in for one
};

/// RFC 8259 text. Refused: truncated or malformed text, bytes after the value, repeated keys,
/// nesting deeper than 64, numbers out of a double's range. Errors: "malformed-json",
/// "truncated-json" (where: name:line:column), "duplicate-field".
Result<JsonDocument> parse_json(std::string_view text, const std::string& name);
Result<JsonDocument> read_json_file(const std::string& path);
/// Wraps a value that was built in memory.
JsonDocument json_document(nlohmann::json value, const std::string& name);

/// One value of a document and how it was reached.
class JsonCursor {
 public:
  explicit JsonCursor(const JsonDocument& document);

  /// "file:/pointer", for errors.
  std::string where() const;
  Error error(std::string code, std::string message, std::string hint = "") const;

  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_number() const;
  bool is_boolean() const;
  bool is_null() const;
  /// "an object", "a string" …
  std::string_view type_name() const;

  Status expect_object() const;
  Result<std::vector<JsonCursor>> elements() const;
  /// Names in the order of the JSON library (sorted).
  std::vector<std::string> field_names() const;
  bool has(std::string_view name) const;
  /// The field, which must exist.
  JsonCursor at(std::string_view name) const;

  Result<std::int64_t> integer(std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                               std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  Result<double> number(double least = -std::numeric_limits<double>::max(),
                        double most = std::numeric_limits<double>::max()) const;
  Result<bool> boolean() const;
  Result<std::string> string() const;
  /// A string of the list; the error names the nearest.
  Result<std::string> one_of(const std::vector<std::string>& known) const;

  // Strings with a unit; a bare number is refused with a hint that shows the unit.
  Result<Bytes> bytes(Zero zero = Zero::kRefused) const;
  Result<BytesPerSecond> rate(Zero zero = Zero::kRefused) const;
  Result<Seconds> duration(Zero zero = Zero::kRefused) const;
  Result<FlopPerSecond> flop_rate() const;
  Result<double> watts() const;
  Result<double> price() const;

 private:
  JsonCursor(const JsonCursor& parent, const nlohmann::json& value, const std::string& step);
  Result<std::string> quantity_text() const;

  std::shared_ptr<const nlohmann::json> root_;
  std::shared_ptr<const std::string> name_;
  const nlohmann::json* value_;
  std::string pointer_;
};

/// Reads one object field by field and remembers the first error, so that a reader is a list of
/// fields. finish() reports fields that nobody asked for first: a misspelt name is then called
/// that, not a missing field.
///   ObjectReader r(cursor);
///   r.required("seq", job.seq, [](const JsonCursor& c) { return c.integer(1, kMost); });
///   return r.finish();
class ObjectReader {
 public:
  explicit ObjectReader(const JsonCursor& at);

  template <class T, class Read>
  void required(std::string_view name, T& out, Read&& read) {
    if (!announce(name)) return missing(name);
    take(name, out, std::forward<Read>(read));
  }
  /// Leaves `out` as it is when the field is absent.
  template <class T, class Read>
  void optional(std::string_view name, T& out, Read&& read) {
    if (announce(name)) take(name, out, std::forward<Read>(read));
  }
  /// Known, but not read here.
  void allow(std::string_view name) { announce(name); }
  void fail(Error error);

  Status finish() const;

 private:
  /// Notes that `name` is known; true when the object has it and nothing failed yet.
  bool announce(std::string_view name);
  void missing(std::string_view name);
  template <class T, class Read>
  void take(std::string_view name, T& out, Read&& read) {
    auto value = read(at_.at(name));
    if (value) {
      out = static_cast<T>(std::move(*value));
    } else {
      fail(value.error());
    }
  }

  JsonCursor at_;
  bool is_object_;
  std::vector<std::string> known_;
  Status first_error_;
};

}  // namespace bayplan
