// Reads the header of a safetensors file: 8 bytes of length (little-endian), a JSON object, then
// the tensors' bytes. Nothing is trusted: every tensor has the bytes that its shape takes, and the
// tensors fill the file without gaps or overlaps, as the format demands
// (github.com/huggingface/safetensors). Not for: writing (executor/checkpoint/safetensors.h), nor
// for the values (tensor_difference.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/core/dtype.h"
#include "planner/core/result.h"

namespace bayplan {

struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::kFp32;
  std::vector<std::int64_t> shape;  // outermost first; empty = one element
  std::int64_t begin = 0;           // bytes of the file, [begin, end)
  std::int64_t end = 0;
  friend bool operator==(const SafetensorsTensor&, const SafetensorsTensor&) = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // ascending by name
};

/// Longest JSON header that is read, the limit of the reference implementation.
constexpr std::int64_t kLongestSafetensorsHeader = 100'000'000;

/// "F32"; F64, F32, F16, BF16, I64 and I32 are read.
std::string_view safetensors_dtype_name(DType dtype);

/// start: the first bytes of a file that has `file_bytes` in all; at least its header.
/// name: of the file, for errors. Errors: "bad-safetensors", "truncated-safetensors",
/// "unsupported-dtype", and those of parse_json.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view start, std::int64_t file_bytes,
                                                   const std::string& name);

/// Errors: those of parse_safetensors_header and read_text_file.
Result<SafetensorsHeader> read_safetensors_header(const std::string& path);

}  // namespace bayplan
