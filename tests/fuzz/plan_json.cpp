// Fuzz target: plan files. A plan that is read is written and read back equal.
#include "planner/formats/plan_json.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "models/clusters.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bayplan;
  const auto document = parse_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!document) return 0;
  const auto file = read_plan(JsonCursor(*document), find_hardware_preset);
  if (!file) return 0;
  const auto again = parse_json(write_plan(*file).dump(), "again.json");
  if (!again) std::abort();
  const auto back = read_plan(JsonCursor(*again), find_hardware_preset);
  if (!back || !(back->plan == file->plan) || !(back->model == file->model)) std::abort();
  return 0;
}
