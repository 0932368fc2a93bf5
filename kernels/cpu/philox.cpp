// Random bits, uniforms and normals as functions of a global element index.
#include "kernels/philox.h"

#include <algorithm>

#include "kernels/cpu/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/philox.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "kernels/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {

void bits(std::uint32_t* out, const PhiloxStream& stream, std::uint64_t first, Range elements) {
  for_philox_chunks(stream, first, elements,
                    [&](std::int64_t begin, std::int64_t end, const std::uint32_t* words) {
                      std::copy(words, words + (end - begin), out + begin);
                    });
}

/// Standard normals of `pairs` pairs of words, out[2 j] = r cos(a), out[2 j + 1] = r sin(a) with
/// r = sqrt(-2 log((w + 1) / 2^32)) and a = 2 pi w' / 2^32.
HWY_INLINE void box_muller(double* out, const std::uint32_t* words, std::int64_t pairs) {
  constexpr double kUnit = 0x1p-32;
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  const hn::CappedTag<double, 8> d;
  constexpr std::size_t kLanes = static_cast<std::size_t>(lanes(decltype(d)()));
  HWY_ALIGN double first[kLanes];
  HWY_ALIGN double second[kLanes];
  for (std::int64_t j = 0; j < pairs; j += lanes(d)) {
    const std::int64_t count = std::min(lanes(d), pairs - j);
    for (std::int64_t lane = 0; lane < lanes(d); ++lane) {
      const std::int64_t pair = j + std::min(lane, count - 1);
      first[lane] = static_cast<double>(words[2 * pair]);
      second[lane] = static_cast<double>(words[2 * pair + 1]);
    }
    const auto u = hn::Mul(hn::Add(hn::Load(d, first), hn::Set(d, 1.0)), hn::Set(d, kUnit));
    const auto angle = hn::Mul(hn::Load(d, second), hn::Set(d, kUnit * kTwoPi));
    const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0), hn::Log(d, u)));
    hn::Store(hn::Mul(radius, hn::Cos(d, angle)), d, first);
    hn::Store(hn::Mul(radius, hn::Sin(d, angle)), d, second);
    for (std::int64_t lane = 0; lane < count; ++lane) {
      out[2 * (j + lane)] = first[lane];
      out[2 * (j + lane) + 1] = second[lane];
    }
  }
}

/// out[i] = standard normal of element first + i.
void normals(double* out, const PhiloxStream& stream, std::uint64_t first, std::int64_t n) {
  HWY_ALIGN std::uint32_t words[kPhiloxChunk];
  double values[kPhiloxChunk];
  std::int64_t i = 0;
  while (i < n) {
    const std::uint64_t global = first + static_cast<std::uint64_t>(i);
    const std::int64_t skip = static_cast<std::int64_t>(global & 3);
    const std::int64_t count = std::min(n - i, kPhiloxChunk - skip);
    const std::int64_t blocks = (skip + count + 3) / 4;
    philox_blocks(words, stream, global >> 2, blocks);
    box_muller(values, words, 2 * blocks);
    std::copy(values + skip, values + skip + count, out + i);
    i += count;
  }
}

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bayplan::kernels {
namespace {
HWY_EXPORT(bits);
HWY_EXPORT(normals);

/// Elements produced between conversions to the output type: 8 KiB of doubles on the stack.
constexpr std::int64_t kChunk = 1024;

/// Calls body(begin, end) for consecutive runs of at most kChunk elements.
template <class Body>
void for_chunks(Range elements, Body body) {
  for (std::int64_t i = elements.begin; i < elements.end; i += kChunk) {
    body(i, std::min(elements.end, i + kChunk));
  }
}
}  // namespace

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxFactor0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxFactor1} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  return counter;
}

void philox_bits(std::uint32_t* out, const PhiloxStream& stream, std::uint64_t first,
                 Range elements) {
  HWY_DYNAMIC_DISPATCH(bits)(out, stream, first, elements);
}

template <class T>
void philox_uniform(T* out, const PhiloxStream& stream, std::uint64_t first, Range elements) {
  std::uint32_t words[kChunk];
  for_chunks(elements, [&](std::int64_t begin, std::int64_t end) {
    philox_bits(words, stream, first + static_cast<std::uint64_t>(begin), Range{0, end - begin});
    for (std::int64_t i = begin; i < end; ++i) {
      out[i] = static_cast<T>(words[i - begin] >> 8) * static_cast<T>(0x1p-24);
    }
  });
}

template <class T>
void philox_normal(T* out, const PhiloxStream& stream, std::uint64_t first, double mean,
                   double stddev, Range elements) {
  double values[kChunk];
  for_chunks(elements, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(normals)
    (values, stream, first + static_cast<std::uint64_t>(begin), end - begin);
    for (std::int64_t i = begin; i < end; ++i) {
      out[i] = static_cast<T>(mean + stddev * values[i - begin]);
    }
  });
}

template void philox_uniform<float>(float*, const PhiloxStream&, std::uint64_t, Range);
template void philox_uniform<double>(double*, const PhiloxStream&, std::uint64_t, Range);
template void philox_normal<float>(float*, const PhiloxStream&, std::uint64_t, double, double,
                                   Range);
template void philox_normal<double>(double*, const PhiloxStream&, std::uint64_t, double, double,
                                    Range);

}  // namespace bayplan::kernels
#endif
