// Sums over rows (bias and norm weight gradients): every column is one chain of additions in
// ascending row order, so any split by columns gives the same bits.
#if defined(BAYPLAN_KERNELS_CPU_COLUMN_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BAYPLAN_KERNELS_CPU_COLUMN_SUM_INL_H_
#undef BAYPLAN_KERNELS_CPU_COLUMN_SUM_INL_H_
#else
#define BAYPLAN_KERNELS_CPU_COLUMN_SUM_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {

/// Columns summed together: long enough runs of each row for the hardware prefetcher, while the
/// running sums (at most 8 KiB) stay in L1.
constexpr std::int64_t kStrip = 512;

/// Rows added between a load and a store of the running sums.
constexpr std::int64_t kRowsAtOnce = 4;

/// sums[c - first] += terms of rows [row, row + count), for the columns [first, last).
template <class D, class Add>
HWY_INLINE void add_rows(D d, std::int64_t row, std::int64_t count, std::int64_t first,
                         std::int64_t last, hn::TFromD<D>* sums, const Add& add) {
  for_vectors(d, first, last, [&](std::int64_t c, auto access) HWY_ATTR {
    auto sum = hn::LoadU(d, sums + (c - first));
    if (count == kRowsAtOnce) {
      for (std::int64_t k = 0; k < kRowsAtOnce; ++k) {
        sum = add(row + k, c, access, sum);
      }
    } else {
      for (std::int64_t k = 0; k < count; ++k) {
        sum = add(row + k, c, access, sum);
      }
    }
    hn::StoreU(sum, d, sums + (c - first));
  });
}

template <class D>
HWY_INLINE void finish(D d, std::int64_t first, std::int64_t last, bool accumulate,
                       const hn::TFromD<D>* sums, hn::TFromD<D>* out) {
  for_vectors(d, first, last, [&](std::int64_t c, auto access) HWY_ATTR {
    auto sum = hn::LoadU(d, sums + (c - first));
    if (accumulate) {
      sum = hn::Add(access.load(d, out + c), sum);
    }
    access.store(d, sum, out + c);
  });
}

/// out[c] = (accumulate ? out[c] : 0) + the sum over rows; with a second output that is not null,
/// the same for it, in one pass over memory. add(row, column, access, sum) returns sum plus the
/// terms of the vector at (row, column).
template <class D, class Add, class Add2>
HWY_INLINE void column_sums(D d, std::int64_t rows, Range columns, bool accumulate,
                            hn::TFromD<D>* out, const Add& add, hn::TFromD<D>* out2,
                            const Add2& add2) {
  using A = hn::TFromD<D>;
  HWY_ALIGN A sums[kStrip];
  HWY_ALIGN A sums2[kStrip];
  for (std::int64_t first = columns.begin; first < columns.end; first += kStrip) {
    const std::int64_t last = std::min(columns.end, first + kStrip);
    std::fill(sums, sums + kStrip, A{0});
    std::fill(sums2, sums2 + kStrip, A{0});
    for (std::int64_t row = 0; row < rows; row += kRowsAtOnce) {
      const std::int64_t count = std::min(kRowsAtOnce, rows - row);
      add_rows(d, row, count, first, last, sums, add);
      if (out2 != nullptr) {
        add_rows(d, row, count, first, last, sums2, add2);
      }
    }
    finish(d, first, last, accumulate, sums, out);
    if (out2 != nullptr) {
      finish(d, first, last, accumulate, sums2, out2);
    }
  }
}

template <class D, class Add>
HWY_INLINE void column_sums(D d, std::int64_t rows, Range columns, bool accumulate,
                            hn::TFromD<D>* out, const Add& add) {
  column_sums(d, rows, columns, accumulate, out, add, nullptr, add);
}

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
