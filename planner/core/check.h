// Assertion for our own bugs. On in every build: a wrong plan costs more than a compare.
#pragma once

#include <stdexcept>
#include <string>

namespace bayplan {

/// Thrown by BAYPLAN_CHECK: a defect of Bayplan itself, never of its input.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] inline void check_failed(const char* file, int line, const char* expression,
                                      const std::string& message) {
  throw InternalError(std::string(file) + ":" + std::to_string(line) + ": internal error: " +
                      expression + (message.empty() ? "" : " (" + message + ")"));
}

}  // namespace bayplan

#define BAYPLAN_CHECK(condition, message)                                                 \
  do {                                                                                    \
    if (!(condition)) ::bayplan::check_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
