// Fuzz target: the text form of programs. A text that is read prints and reads back equal, and
// verify() judges any program that can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "planner/program/text.h"
#include "planner/program/verify.h"
#include "tests/unit/program/tiny_plans.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bayplan;
  static const Program skeleton = [] {
    test::TinyShape shape;
    shape.pp = 2;
    shape.micro_batches = 2;
    return test::tiny_program(shape);
  }();
  const auto program = parse_text(std::string(reinterpret_cast<const char*>(data), size), skeleton);
  if (!program) return 0;
  const auto again = parse_text(to_text(*program), skeleton);
  if (!again || again->fingerprint != program->fingerprint) std::abort();
  (void)verify(*program, VerifyOptions{});
  return 0;
}
