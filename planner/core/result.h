// Errors as values. User input fails with Result<T>; our own bugs fail with BAYPLAN_CHECK
// (check.h); the world failing during a run is exec::ExecutorError.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "planner/core/check.h"

namespace bayplan {

/// What went wrong, where (file + JSON pointer, or option name) and what to do about it.
/// `code` is a stable kebab-case word for scripts.
struct Error {
  std::string code;
  std::string message;
  std::string where;
  std::string hint;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() {
    BAYPLAN_CHECK(ok(), error().message);
    return std::get<0>(state_);
  }
  const T& value() const {
    BAYPLAN_CHECK(ok(), error().message);
    return std::get<0>(state_);
  }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value, or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace bayplan

/// Evaluates `expr` (a Result), returns its error from the current function or binds its value.
#define BAYPLAN_TRY(name, expr) BAYPLAN_TRY_CONCAT_(name, expr, __LINE__)
#define BAYPLAN_TRY_CONCAT_(name, expr, line) BAYPLAN_TRY_BIND_(name, expr, line)
#define BAYPLAN_TRY_BIND_(name, expr, line)                   \
  auto bayplan_try_##line = (expr);                           \
  if (!bayplan_try_##line) return bayplan_try_##line.error(); \
  auto& name = *bayplan_try_##line

/// Returns the error of a Status (or Result) from the current function, if there is one.
#define BAYPLAN_RETURN_IF_ERROR(expr)                                                 \
  do {                                                                                \
    if (auto bayplan_status = (expr); !bayplan_status) return bayplan_status.error(); \
  } while (false)
