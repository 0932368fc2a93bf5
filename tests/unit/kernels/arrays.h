// Arrays for kernel tests: seeded values in any storage type, comparison with an fp64 reference
// under a bound per element, and equality of bits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/types.h"

namespace bayplan::kernels::test {

using StorageTypes = ::testing::Types<float, double, bf16>;

/// Unit roundoff of what T is computed in.
template <class T>
inline constexpr double kUnit = sizeof(accumulate_t<T>) == 4 ? 0x1p-24 : 0x1p-53;

/// Unit roundoff of storing a result in T; included in kUnit unless T is bf16.
template <class T>
inline constexpr double kStoreUnit = std::is_same_v<T, bf16> ? 0x1p-8 : 0.0;

template <class T>
T narrow(double value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
double widen(T value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_float(value);
  } else {
    return value;
  }
}

template <class T>
std::vector<double> widen(const std::vector<T>& values) {
  std::vector<double> result;
  for (const T value : values) {
    result.push_back(widen(value));
  }
  return result;
}

/// n values of T, uniform in [low, high).
template <class T>
std::vector<T> random_array(std::int64_t n, unsigned seed, double low = -2.0, double high = 2.0) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<T> values;
  for (std::int64_t i = 0; i < n; ++i) {
    values.push_back(narrow<T>(uniform(engine)));
  }
  return values;
}

/// |got[i] - want[i]| <= bound(i), plus the rounding of storage.
template <class T, class Bound>
void expect_close(const std::vector<T>& got, const std::vector<double>& want, const Bound& bound) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double limit = bound(i) + kStoreUnit<T> * std::abs(want[i]);
    const double error = std::abs(widen(got[i]) - want[i]);
    ASSERT_TRUE(error <= limit) << "element " << i << " of " << got.size() << ": got "
                                << widen(got[i]) << ", want " << want[i] << ", error " << error
                                << " above " << limit;
  }
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// The array with `shift` elements put before it: data() + shift is then misaligned.
template <class T>
std::vector<T> shifted(const std::vector<T>& values, std::int64_t shift) {
  std::vector<T> result(static_cast<std::size_t>(shift), T{});
  result.insert(result.end(), values.begin(), values.end());
  return result;
}

template <class T>
std::vector<T> unshifted(const std::vector<T>& values, std::int64_t shift) {
  return {values.begin() + shift, values.end()};
}

/// Calls body on [0, n) cut into pieces of 1, 2, 3, ... elements: every alignment, every tail.
template <class Body>
void in_pieces(std::int64_t n, const Body& body) {
  std::int64_t begin = 0;
  for (std::int64_t length = 1; begin < n; ++length) {
    const std::int64_t end = std::min(n, begin + length);
    body(Range{begin, end});
    begin = end;
  }
}

}  // namespace bayplan::kernels::test
