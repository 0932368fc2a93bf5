// Quantities as text with their unit: "80GiB", "200Gbps", "25us", "312TFLOP/s", "400W".
// A number without a unit is an error, GB and GiB differ, and nothing is rounded silently
// except to the nearest byte. Not for: arithmetic (planner/core/units.h).
#pragma once

#include <string>
#include <string_view>

#include "planner/core/result.h"
#include "planner/core/units.h"

namespace bayplan {

/// Whether 0 is a legal value: "0B" of NVMe is, 0 bytes of GPU memory are not.
enum class Zero : std::uint8_t { kRefused, kAllowed };

// Readers. `where` goes into the error unchanged: file and JSON pointer, or an option's name.
// Negative, overflowing, empty and unit-less texts are errors with codes "out-of-range" and
// "bad-quantity".
Result<Bytes> parse_bytes(std::string_view text, const std::string& where,
                          Zero zero = Zero::kRefused);
/// Bytes per second ("3GB/s", "1GiB/s") or bits per second ("200Gbps", divided by 8).
Result<BytesPerSecond> parse_rate(std::string_view text, const std::string& where,
                                  Zero zero = Zero::kRefused);
Result<Seconds> parse_duration(std::string_view text, const std::string& where,
                               Zero zero = Zero::kRefused);
Result<FlopPerSecond> parse_flop_rate(std::string_view text, const std::string& where);
Result<double> parse_watts(std::string_view text, const std::string& where);
/// US dollars per hour: "2.5USD/h".
Result<double> parse_price(std::string_view text, const std::string& where);

// Writers that the readers turn back into exactly the same value.
std::string exact_bytes(Bytes value);
std::string exact_rate(BytesPerSecond value);
std::string exact_duration(Seconds value);
std::string exact_flop_rate(FlopPerSecond value);
std::string exact_watts(double watts);
std::string exact_price(double usd_per_hour);
/// Shortest decimal text that reads back as the same double.
std::string exact_number(double value);

// Writers for people: three significant digits, always with the unit.
std::string short_bytes(Bytes value);       // binary units: "79.1 GiB"
std::string short_duration(Seconds value);  // "1.23 ms"
std::string short_rate(BytesPerSecond value);
std::string short_count(double value);  // "124 M", "1.5 k"

}  // namespace bayplan
