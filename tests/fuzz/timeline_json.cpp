// Fuzz target: timeline files.
#include "planner/formats/timeline_json.h"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)bayplan::parse_timeline({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  return 0;
}
