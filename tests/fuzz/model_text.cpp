// Fuzz target: MODEL as a plain shape. What is read can be built and counted.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "models/build_model.h"
#include "models/registry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bayplan;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const char* family : {"gpt:", "llama:"}) {
    const auto model = resolve_model(family + text);
    if (!model) continue;
    if (parameter_count(build_model(model->architecture, false)) <= 0) std::abort();
  }
  return 0;
}
