// Element types and index ranges of the CPU kernels: bf16 storage, the type that a storage type
// is computed in, and the half-open range by which a caller splits work among threads.
// Not a tensor: kernels take plain pointers and sizes, and never own memory.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace bayplan::kernels {

/// bfloat16 storage: the upper half of an IEEE binary32. Arithmetic is always done in float.
struct bf16 {  // NOLINT(readability-identifier-naming): named like float
  std::uint16_t bits;
};

/// Exact.
inline float to_float(bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Rounds to nearest, ties to even; overflow gives infinity, every NaN becomes 0x7FC0.
inline bf16 to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return bf16{0x7FC0};
  }
  return bf16{static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

/// What T is computed and accumulated in: float for float and bf16, double for double. Row
/// statistics, losses and weight gradients are stored in it.
template <class T>
using accumulate_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Half-open [begin, end) of elements, rows, tokens, columns or blocks. Pointer arguments always
/// address the whole array; the range says which part of it this call reads and writes. Disjoint
/// ranges may run on different threads, and any split gives bitwise the same result.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

}  // namespace bayplan::kernels
