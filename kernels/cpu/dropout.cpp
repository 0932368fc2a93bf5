// Dropout: random words for a chunk, then one compare-and-scale pass over it.
#include "kernels/dropout.h"

#include <cmath>

#include "kernels/cpu/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/simd-inl.h"

#ifndef BAYPLAN_KERNELS_CPU_DROPOUT_TABLE_
#define BAYPLAN_KERNELS_CPU_DROPOUT_TABLE_
namespace bayplan::kernels {
namespace {
template <class T>
struct DropoutTable {
  decltype(&dropout<T>) dropout_;
};
}  // namespace
}  // namespace bayplan::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {

/// The upper 24 bits of random words, as numbers: exact in float and double.
HWY_INLINE hn::Vec<Compute<float>> upper_bits(Compute<float> d, const std::uint32_t* words) {
  const hn::Rebind<std::uint32_t, Compute<float>> d32;
  const hn::Rebind<std::int32_t, Compute<float>> di32;
  return hn::ConvertTo(d, hn::BitCast(di32, hn::ShiftRight<8>(hn::LoadU(d32, words))));
}
HWY_INLINE hn::Vec<Compute<double>> upper_bits(Compute<double> d, const std::uint32_t* words) {
  const hn::Rebind<std::uint32_t, Compute<double>> d32;
  const hn::Rebind<std::int32_t, Compute<double>> di32;
  return hn::PromoteTo(d, hn::BitCast(di32, hn::ShiftRight<8>(hn::LoadU(d32, words))));
}

template <class T>
void drop(T* out, const T* x, double p, const PhiloxStream& stream, std::uint64_t first,
          Range elements) {
  using A = accumulate_t<T>;
  const Compute<T> d;
  // uniform >= p with uniform = word / 2^24 and word an integer.
  const auto threshold = hn::Set(d, static_cast<A>(std::ceil(p * 0x1p24)));
  const auto factor = hn::Set(d, static_cast<A>(1.0 / (1.0 - p)));
  for_philox_chunks(stream, first, elements,
                    [&](std::int64_t begin, std::int64_t end, const std::uint32_t* words) HWY_ATTR {
                      for_vectors(d, begin, end, [&](std::int64_t i, auto access) HWY_ATTR {
                        const auto keep = hn::Ge(upper_bits(d, words + (i - begin)), threshold);
                        const auto scaled = hn::Mul(access.load(d, x + i), factor);
                        access.store(d, hn::IfThenElseZero(keep, scaled), out + i);
                      });
                    });
}

template <class T>
constexpr DropoutTable<T> make_table() {
  return {&drop<T>};
}
BAYPLAN_TARGET_TABLES(DropoutTable, dropout_table)

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bayplan::kernels {
BAYPLAN_EXPORT_TABLES(DropoutTable, dropout_table)

template <class T>
void dropout(T* out, const T* x, double p, const PhiloxStream& stream, std::uint64_t first,
             Range elements) {
  dropout_table<T>().dropout_(out, x, p, stream, first, elements);
}

BAYPLAN_INSTANTIATE(dropout)

}  // namespace bayplan::kernels
#endif
