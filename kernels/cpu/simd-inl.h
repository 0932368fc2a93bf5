// Per-target building blocks: loads and stores that convert storage types, loops whose tail runs
// through the same vector code as the body (so that an element's result does not depend on its
// position), and row sums in a fixed number of lanes whatever the width of the machine's vectors.
#if defined(BAYPLAN_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BAYPLAN_KERNELS_CPU_SIMD_INL_H_
#undef BAYPLAN_KERNELS_CPU_SIMD_INL_H_
#else
#define BAYPLAN_KERNELS_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/types.h"

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

/// Lanes of a row sum, 32 for float and 16 for double: two AVX-512 or four AVX2 vectors, enough to
/// hide the latency of the addition.
template <class A>
constexpr std::size_t kSumLanes = 128 / sizeof(A);

/// Vectors of what T is computed in.
template <class T>
using Compute = hn::CappedTag<accumulate_t<T>, kSumLanes<accumulate_t<T>>>;

template <class D>
constexpr std::int64_t lanes(D d) {
  return static_cast<std::int64_t>(hn::MaxLanes(d));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bf16* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::Rebind<std::uint32_t, D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, &p->bits))));
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, hn::TFromD<D>* p) {
  hn::StoreU(v, d, p);
}

/// As to_bf16() of types.h.
template <class D>
HWY_INLINE void store([[maybe_unused]] D d, hn::Vec<D> v, bf16* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::Rebind<std::uint32_t, D> d32;
  const hn::Rebind<std::int32_t, D> di32;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFFu))));
  const auto nan = hn::RebindMask(d32, hn::IsNaN(v));
  const auto result = hn::IfThenElse(nan, hn::Set(d32, 0x7FC0u), rounded);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, result)), d16, &p->bits);
}

/// Access to a full vector of elements ...
struct Whole {
  template <class D, class T>
  HWY_INLINE hn::Vec<D> load(D d, const T* p) const {
    return HWY_NAMESPACE::load(d, p);
  }
  template <class D, class T>
  HWY_INLINE void store(D d, hn::Vec<D> v, T* p) const {
    HWY_NAMESPACE::store(d, v, p);
  }
  /// v where there is an element, else `other`.
  template <class D>
  HWY_INLINE hn::Vec<D> keep(D, hn::Vec<D> v, hn::Vec<D>) const {
    return v;
  }
};

/// ... and to the n < lanes elements of a tail: the missing ones read as zero and are not written.
struct Part {
  std::size_t n;

  template <class D, class T>
  HWY_INLINE hn::Vec<D> load(D d, const T* p) const {
    HWY_ALIGN T buffer[static_cast<std::size_t>(lanes(D()))] = {};
    std::memcpy(buffer, p, n * sizeof(T));
    return HWY_NAMESPACE::load(d, buffer);
  }
  template <class D, class T>
  HWY_INLINE void store(D d, hn::Vec<D> v, T* p) const {
    HWY_ALIGN T buffer[static_cast<std::size_t>(lanes(D()))];
    HWY_NAMESPACE::store(d, v, buffer);
    std::memcpy(p, buffer, n * sizeof(T));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> keep(D d, hn::Vec<D> v, hn::Vec<D> other) const {
    return hn::IfThenElse(hn::FirstN(d, n), v, other);
  }
};

/// body(i, access) for vectors that start at i and cover [begin, end).
template <class D, class Body>
HWY_INLINE void for_vectors(D d, std::int64_t begin, std::int64_t end, Body body) {
  std::int64_t i = begin;
  for (; i + lanes(d) <= end; i += lanes(d)) {
    body(i, Whole{});
  }
  if (i < end) {
    body(i, Part{static_cast<std::size_t>(end - i)});
  }
}

/// Folds the lanes of a row sum by halves: of 32, lane i takes lane i + 16, then i + 8, ...
template <class A>
HWY_INLINE A fold(A* sums) {
  for (std::size_t half = kSumLanes<A> / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) {
      sums[i] += sums[i + half];
    }
  }
  return sums[0];
}

/// `count` sums over a row of `width` elements, taken together. body(c, access, sums) adds the
/// terms of the vector at column c to sums[0 .. count): whatever it adds for an absent element
/// must be zero. Lane c % kSumLanes of a sum gets the terms of column c, in ascending order.
template <int count, class D, class Body>
HWY_INLINE void row_sums(D d, std::int64_t width, hn::TFromD<D>* totals, Body body) {
  using V = hn::Vec<D>;
  using A = hn::TFromD<D>;
  constexpr std::int64_t kStep = static_cast<std::int64_t>(kSumLanes<A>);
  constexpr std::int64_t kLanes = lanes(D());
  constexpr int kVectors = static_cast<int>(kStep / kLanes);

  V sums[kVectors][count];
  for (auto& vector : sums) {
    for (V& sum : vector) {
      sum = hn::Zero(d);
    }
  }
  std::int64_t c = 0;
  for (; c + kStep <= width; c += kStep) {
    for (int k = 0; k < kVectors; ++k) {
      body(c + k * kLanes, Whole{}, sums[k]);
    }
  }
  HWY_ALIGN A memory[count][kSumLanes<A>];
  for (int k = 0; k < kVectors; ++k) {
    for (int s = 0; s < count; ++s) {
      hn::Store(sums[k][s], d, &memory[s][k * kLanes]);
    }
  }
  for_vectors(d, c, width, [&](std::int64_t at, auto access) HWY_ATTR {
    V tail[count];
    for (int s = 0; s < count; ++s) {
      tail[s] = hn::Load(d, &memory[s][at - c]);
    }
    body(at, access, tail);
    for (int s = 0; s < count; ++s) {
      hn::Store(tail[s], d, &memory[s][at - c]);
    }
  });
  for (int s = 0; s < count; ++s) {
    totals[s] = fold(memory[s]);
  }
}

template <class D, class Body>
HWY_INLINE hn::TFromD<D> row_sum(D d, std::int64_t width, Body body) {
  hn::TFromD<D> total;
  row_sums<1>(d, width, &total, body);
  return total;
}

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
