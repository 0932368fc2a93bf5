// Quantities with their unit in the type, so that bytes, seconds and rates cannot be mixed up.
// Not for: parsing or printing units (planner/formats/quantity.h).
#pragma once

#include <compare>
#include <cstdint>

namespace bayplan {

/// A value of representation `Rep` in the unit that `Tag` names. Same-unit arithmetic only;
/// `.value` leaves the system on purpose.
template <class Tag, class Rep>
struct Quantity {
  Rep value{};

  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep v) : value(v) {}

  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.value + b.value);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value - b.value);
  }
  friend constexpr Quantity operator*(Quantity a, Rep k) { return Quantity(a.value * k); }
  friend constexpr Quantity operator*(Rep k, Quantity a) { return Quantity(a.value * k); }
  constexpr Quantity& operator+=(Quantity b) {
    value += b.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity b) {
    value -= b.value;
    return *this;
  }
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;
using Seconds = Quantity<struct SecondsTag, double>;
using FlopCount = Quantity<struct FlopTag, double>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;
using FlopPerSecond = Quantity<struct FlopPerSecondTag, double>;
/// Simulated time. Integer, so that event order never depends on rounding.
using Picoseconds = Quantity<struct PicosecondsTag, std::int64_t>;

constexpr Seconds operator/(Bytes b, BytesPerSecond r) {
  return Seconds(static_cast<double>(b.value) / r.value);
}
constexpr Seconds operator/(FlopCount f, FlopPerSecond r) { return Seconds(f.value / r.value); }
/// Saturates at 4e18 ps (46 days), also for infinity and NaN.
constexpr Picoseconds to_picoseconds(Seconds s) {
  constexpr double kMost = 4e18;
  const double t = s.value * 1e12 + 0.5;
  return Picoseconds(static_cast<std::int64_t>(t < kMost ? t : kMost));
}
constexpr Seconds to_seconds(Picoseconds t) {
  return Seconds(static_cast<double>(t.value) * 1e-12);
}

constexpr Bytes operator""_KiB(unsigned long long v) {
  return Bytes(static_cast<std::int64_t>(v) << 10);
}
constexpr Bytes operator""_MiB(unsigned long long v) {
  return Bytes(static_cast<std::int64_t>(v) << 20);
}
constexpr Bytes operator""_GiB(unsigned long long v) {
  return Bytes(static_cast<std::int64_t>(v) << 30);
}
constexpr Bytes operator""_GB(unsigned long long v) {
  return Bytes(static_cast<std::int64_t>(v) * 1'000'000'000);
}

/// Smallest multiple of `unit` (> 0) that is >= n (>= 0).
constexpr std::int64_t round_up(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}
constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit; }

}  // namespace bayplan
