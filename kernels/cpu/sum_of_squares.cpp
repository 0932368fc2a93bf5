// Sums in fp64 whose order depends on the array's length only.
#include <algorithm>

#include "kernels/cpu/dispatch.h"
#include "kernels/optim.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sum_of_squares.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"

#ifndef BAYPLAN_KERNELS_CPU_SQUARES_TABLE_
#define BAYPLAN_KERNELS_CPU_SQUARES_TABLE_
namespace bayplan::kernels {
namespace {
template <class T>
struct SquaresTable {
  double (*block)(const T* x, std::int64_t n);
};
}  // namespace
}  // namespace bayplan::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {

/// A vector of doubles from storage.
template <class D>
HWY_INLINE hn::Vec<D> widen(D d, const double* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> widen(D d, const float* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), p));
}
template <class D>
HWY_INLINE hn::Vec<D> widen(D d, const bf16* p) {
  return hn::PromoteTo(d, load(hn::Rebind<float, D>(), p));
}

template <class T>
double block_sum(const T* x, std::int64_t n) {
  const Compute<double> d;
  // The tail is padded with zeros, which add nothing to a sum of squares.
  constexpr std::int64_t kStep = kSumLanes<double>;
  const std::int64_t whole = n - n % kStep;
  T tail[kSumLanes<double>] = {};
  std::copy(x + whole, x + n, tail);
  hn::Vec<decltype(d)> sums[kStep / lanes(d)];
  for (auto& sum : sums) {
    sum = hn::Zero(d);
  }
  for (std::int64_t i = 0; i < whole + kStep; i += kStep) {
    const T* from = i < whole ? x + i : tail;
    for (std::int64_t k = 0; k < kStep / lanes(d); ++k) {
      const auto value = widen(d, from + k * lanes(d));
      sums[k] = hn::MulAdd(value, value, sums[k]);
    }
  }
  HWY_ALIGN double memory[kSumLanes<double>];
  for (std::int64_t k = 0; k < kStep / lanes(d); ++k) {
    hn::Store(sums[k], d, memory + k * lanes(d));
  }
  return fold(memory);
}

template <class T>
constexpr SquaresTable<T> make_table() {
  return {&block_sum<T>};
}
BAYPLAN_TARGET_TABLES(SquaresTable, squares_table)

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bayplan::kernels {
BAYPLAN_EXPORT_TABLES(SquaresTable, squares_table)

template <class T>
void sum_of_squares_blocks(double* partial, const T* x, std::int64_t n, Range blocks) {
  const auto block = squares_table<T>().block;
  for (std::int64_t b = blocks.begin; b < blocks.end; ++b) {
    partial[b] = block(x + b * kSumBlock, std::min(kSumBlock, n - b * kSumBlock));
  }
}

template <class T>
double sum_of_squares(const T* x, std::int64_t n) {
  const auto block = squares_table<T>().block;
  double total = 0;
  for (std::int64_t start = 0; start < n; start += kSumBlock) {
    total += block(x + start, std::min(kSumBlock, n - start));
  }
  return total;
}

template <class T>
double sum_ascending(const T* x, std::int64_t n) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    total += static_cast<double>(x[i]);
  }
  return total;
}

BAYPLAN_INSTANTIATE(sum_of_squares_blocks)
BAYPLAN_INSTANTIATE(sum_of_squares)
template double sum_ascending<float>(const float*, std::int64_t);
template double sum_ascending<double>(const double*, std::int64_t);

}  // namespace bayplan::kernels
#endif
