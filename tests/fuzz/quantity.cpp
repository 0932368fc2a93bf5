// Fuzz target: quantities. What is read prints as text that reads back the same.
#include "planner/formats/quantity.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bayplan;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto bytes = parse_bytes(text, "fuzz", Zero::kAllowed); bytes.ok()) {
    if (parse_bytes(exact_bytes(*bytes), "fuzz", Zero::kAllowed)->value != bytes->value)
      std::abort();
  }
  if (const auto rate = parse_rate(text, "fuzz", Zero::kAllowed); rate.ok()) {
    if (parse_rate(exact_rate(*rate), "fuzz", Zero::kAllowed)->value != rate->value) std::abort();
    short_rate(*rate);
  }
  if (const auto time = parse_duration(text, "fuzz", Zero::kAllowed); time.ok()) {
    if (parse_duration(exact_duration(*time), "fuzz", Zero::kAllowed)->value != time->value)
      std::abort();
    short_duration(*time);
  }
  (void)parse_flop_rate(text, "fuzz");
  (void)parse_watts(text, "fuzz");
  (void)parse_price(text, "fuzz");
  return 0;
}
