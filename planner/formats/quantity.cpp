#include "planner/formats/quantity.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <span>

namespace bayplan {
namespace {

struct UnitFactor {
  std::string_view name;
  double factor = 1.0;
};

constexpr double kKi = 1024.0;

// Within each table larger units come first, so that writers pick the largest that is exact.
constexpr UnitFactor kByteUnits[] = {
    {"PiB", kKi* kKi* kKi* kKi* kKi},
    {"TiB", kKi* kKi* kKi* kKi},
    {"GiB", kKi* kKi* kKi},
    {"MiB", kKi* kKi},
    {"KiB", kKi},
    {"PB", 1e15},
    {"TB", 1e12},
    {"GB", 1e9},
    {"MB", 1e6},
    {"kB", 1e3},
    {"B", 1.0},
};
constexpr UnitFactor kRateUnits[] = {
    {"TB/s", 1e12},
    {"GB/s", 1e9},
    {"MB/s", 1e6},
    {"kB/s", 1e3},
    {"B/s", 1.0},
    {"TiB/s", kKi* kKi* kKi* kKi},
    {"GiB/s", kKi* kKi* kKi},
    {"MiB/s", kKi* kKi},
    {"KiB/s", kKi},
    {"Tbps", 1e12 / 8},
    {"Gbps", 1e9 / 8},
    {"Mbps", 1e6 / 8},
    {"kbps", 1e3 / 8},
};
constexpr UnitFactor kTimeUnits[] = {
    {"h", 3600.0}, {"min", 60.0}, {"s", 1.0},    {"ms", 1e-3},
    {"us", 1e-6},  {"ns", 1e-9},  {"ps", 1e-12},
};
constexpr UnitFactor kFlopUnits[] = {
    {"PFLOP/s", 1e15}, {"TFLOP/s", 1e12}, {"GFLOP/s", 1e9}, {"MFLOP/s", 1e6}, {"FLOP/s", 1.0},
};
constexpr UnitFactor kPowerUnits[] = {{"kW", 1e3}, {"W", 1.0}};
constexpr UnitFactor kPriceUnits[] = {{"USD/h", 1.0}};

struct Kind {
  std::string_view noun;
  std::string_view example;
  std::span<const UnitFactor> units;
};
const Kind kBytes{"a size in bytes", "80GB or 80GiB", kByteUnits};
const Kind kRate{"a bandwidth", "3GB/s or 200Gbps", kRateUnits};
const Kind kTime{"a duration", "25us", kTimeUnits};
const Kind kFlop{"an arithmetic rate", "312TFLOP/s", kFlopUnits};
const Kind kPower{"a power", "400W", kPowerUnits};
const Kind kPrice{"a price", "2.5USD/h", kPriceUnits};

std::string unit_list(const Kind& kind) {
  std::string list;
  for (const UnitFactor& u : kind.units) {
    if (!list.empty()) list += ", ";
    list += u.name;
  }
  return list;
}

Error bad_quantity(std::string_view text, const std::string& where, const Kind& kind,
                   std::string_view problem) {
  return Error{
      "bad-quantity", fmt::format("'{}' is not {}: {}", text.substr(0, 60), kind.noun, problem),
      where,
      fmt::format("write a number with a unit, as {}; units: {}", kind.example, unit_list(kind))};
}

Result<double> parse(std::string_view text, const std::string& where, const Kind& kind, Zero zero,
                     double limit) {
  double number = 0.0;
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto [rest, error] = std::from_chars(begin, end, number);
  if (error == std::errc::result_out_of_range) {
    return Error{"out-of-range", fmt::format("'{}' overflows", text.substr(0, 60)), where,
                 "write a smaller value"};
  }
  if (error != std::errc{} || !std::isfinite(number)) {
    return bad_quantity(text, where, kind, "it does not start with a number");
  }
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) return bad_quantity(text, where, kind, "the unit is missing");
  for (const UnitFactor& u : kind.units) {
    if (unit != u.name) continue;
    const double value = number * u.factor;
    if (value < 0.0 || (value == 0.0 && std::signbit(number))) {
      return Error{"out-of-range", fmt::format("'{}' is negative", text.substr(0, 60)), where,
                   fmt::format("{} is at least 0", kind.noun)};
    }
    if (value == 0.0 && zero == Zero::kRefused) {
      return Error{"out-of-range", fmt::format("'{}' is zero", text.substr(0, 60)), where,
                   fmt::format("{} must be positive here, as {}", kind.noun, kind.example)};
    }
    if (!(value < limit)) {
      return Error{"out-of-range", fmt::format("'{}' overflows", text.substr(0, 60)), where,
                   fmt::format("{} below {:.3g} of its base unit is expected", kind.noun, limit)};
    }
    return value;
  }
  return bad_quantity(text, where, kind, fmt::format("'{}' is not a known unit", unit));
}

// Bytes must fit into a signed 64-bit count with room for sums of a few of them.
constexpr double kByteLimit = 4.6e18;  // 2^62
constexpr double kRealLimit = 1e30;

std::string exact(double value, std::span<const UnitFactor> units) {
  for (const UnitFactor& u : units) {
    const double count = value / u.factor;
    if (count >= 1.0 && count * u.factor == value) {
      const std::string text = exact_number(count) + std::string(u.name);
      if (text.size() <= 12) return text;
    }
  }
  std::string_view base;
  for (const UnitFactor& u : units) {
    if (u.factor == 1.0) base = u.name;
  }
  return exact_number(value) + std::string(base);
}

std::string significant(double value) {
  if (value >= 99.95) return fmt::format("{:.0f}", value);
  if (value >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

std::string shortened(double value, std::span<const UnitFactor> units, std::string_view base) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  if (value < 0) return "-" + shortened(-value, units, base);
  for (const UnitFactor& u : units) {
    // 999.5 of a unit would print as 1000 of it, so the next larger one takes over there.
    if (value >= u.factor * 0.9995)
      return fmt::format("{} {}", significant(value / u.factor), u.name);
  }
  return fmt::format("{} {}", value == 0.0 ? "0" : fmt::format("{:.3g}", value), base);
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text, const std::string& where, Zero zero) {
  auto value = parse(text, where, kBytes, zero, kByteLimit);
  if (!value) return value.error();
  const double rounded = std::round(*value);
  if (rounded == 0.0 && zero == Zero::kRefused) {
    return Error{"out-of-range", fmt::format("'{}' is less than one byte", text), where,
                 "write a larger value"};
  }
  return Bytes(static_cast<std::int64_t>(rounded));
}

Result<BytesPerSecond> parse_rate(std::string_view text, const std::string& where, Zero zero) {
  auto value = parse(text, where, kRate, zero, kRealLimit);
  if (!value) return value.error();
  return BytesPerSecond(*value);
}

Result<Seconds> parse_duration(std::string_view text, const std::string& where, Zero zero) {
  auto value = parse(text, where, kTime, zero, kRealLimit);
  if (!value) return value.error();
  return Seconds(*value);
}

Result<FlopPerSecond> parse_flop_rate(std::string_view text, const std::string& where) {
  auto value = parse(text, where, kFlop, Zero::kRefused, kRealLimit);
  if (!value) return value.error();
  return FlopPerSecond(*value);
}

Result<double> parse_watts(std::string_view text, const std::string& where) {
  return parse(text, where, kPower, Zero::kAllowed, kRealLimit);
}

Result<double> parse_price(std::string_view text, const std::string& where) {
  return parse(text, where, kPrice, Zero::kAllowed, kRealLimit);
}

std::string exact_number(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  BAYPLAN_CHECK(error == std::errc{}, "a double is at most 24 characters");
  return std::string(text, end);
}

std::string exact_bytes(Bytes value) {
  for (const UnitFactor& u : kByteUnits) {
    const auto factor = static_cast<std::int64_t>(u.factor);
    if (value.value >= factor && value.value % factor == 0) {
      return fmt::format("{}{}", value.value / factor, u.name);
    }
  }
  return fmt::format("{}B", value.value);
}

std::string exact_rate(BytesPerSecond value) { return exact(value.value, kRateUnits); }
std::string exact_duration(Seconds value) { return exact(value.value, kTimeUnits); }
std::string exact_flop_rate(FlopPerSecond value) { return exact(value.value, kFlopUnits); }
std::string exact_watts(double watts) { return exact_number(watts) + "W"; }
std::string exact_price(double usd_per_hour) { return exact_number(usd_per_hour) + "USD/h"; }

std::string short_bytes(Bytes value) {
  return shortened(static_cast<double>(value.value), std::span(kByteUnits).first(5), "B");
}

std::string short_duration(Seconds value) {
  return shortened(value.value, std::span(kTimeUnits).subspan(2), "s");
}

std::string short_rate(BytesPerSecond value) {
  return shortened(value.value, std::span(kRateUnits).first(4), "B/s");
}

std::string short_count(double value) {
  static constexpr UnitFactor kCounts[] = {{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"k", 1e3}};
  std::string text = shortened(value, kCounts, "");
  if (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace bayplan
