// Fuzz target: Hugging Face configurations. What is read can be built and counted.
#include "planner/formats/hf_config.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "models/build_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bayplan;
  const auto document = parse_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!document) return 0;
  const auto model = read_hf_config(JsonCursor(*document), "fuzz");
  if (!model || !check_architecture(model->architecture)) return 0;
  if (parameter_count(build_model(model->architecture, true)) <= 0) std::abort();
  return 0;
}
