// Fuzz target: safetensors files. A header that is read describes tensors that lie in the file.
#include "planner/formats/safetensors_header.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bayplan;
  const auto file_bytes = static_cast<std::int64_t>(size);
  const auto header =
      parse_safetensors_header({reinterpret_cast<const char*>(data), size}, file_bytes, "fuzz");
  if (!header) {
    if (header.error().code.empty() || header.error().hint.empty()) std::abort();
    return 0;
  }
  std::int64_t bytes = 0;
  for (const SafetensorsTensor& t : header->tensors) {
    std::int64_t expected = dtype_size(t.dtype);
    for (const std::int64_t n : t.shape) expected *= n;
    if (t.begin < 8 || t.end > file_bytes || t.end - t.begin != expected) std::abort();
    bytes += expected;
  }
  if (bytes > file_bytes) std::abort();
  return 0;
}
