// Fuzz target: calibration files. A calibration that is read is written and read back equal.
#include "planner/formats/calibration_json.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bayplan;
  const auto document = parse_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!document) return 0;
  const auto calibration = read_calibration(JsonCursor(*document));
  if (!calibration) return 0;
  const auto again = parse_json(calibration_text(*calibration), "again.json");
  if (!again) std::abort();
  const auto back = read_calibration(JsonCursor(*again));
  if (!back || !(*back == *calibration)) std::abort();
  return 0;
}
