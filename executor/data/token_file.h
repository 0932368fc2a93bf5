// Tokens of a file on disk, mapped into memory: text as bytes, or .bin as uint16 / uint32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "planner/core/result.h"

namespace bayplan::exec {

class TokenFile {
 public:
  /// Checks what can be wrong with the file as a whole; every token is < vocab afterwards.
  static Result<std::shared_ptr<const TokenFile>> open(const std::string& path, std::int64_t vocab);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  std::int64_t count() const { return count_; }
  /// out: [n] out, tokens [first, first + n).
  void read(std::int64_t first, std::int64_t n, std::int32_t* out) const;

 private:
  TokenFile(const std::byte* data, std::int64_t bytes, int width)
      : data_(data), bytes_(bytes), width_(width), count_(bytes / width) {}
  std::int64_t token(std::int64_t i) const;

  const std::byte* data_;
  std::int64_t bytes_;
  int width_;  // bytes per token: 1, 2 or 4
  std::int64_t count_;
};

}  // namespace bayplan::exec
