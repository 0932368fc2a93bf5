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

/// `count` sums over rows, taken together: outs[s][c] = (accumulate ? outs[s][c] : 0) + the sum.
/// make(row) returns what adds one row, called as (column, access, sums): it adds the terms of
/// the vector at that column to sums[0 .. count). What it needs of the row alone, such as
/// statistics in vectors, is thus prepared once for all columns.
template <int count, class D, class Make>
HWY_INLINE void column_sums(D d, std::int64_t rows, Range columns, bool accumulate,
                            hn::TFromD<D>* const (&outs)[count], const Make& make) {
  using A = hn::TFromD<D>;
  using V = hn::Vec<D>;
  HWY_ALIGN A memory[count][kStrip];
  for (std::int64_t first = columns.begin; first < columns.end; first += kStrip) {
    const std::int64_t last = std::min(columns.end, first + kStrip);
    std::fill(&memory[0][0], &memory[0][0] + count * kStrip, A{0});
    const auto add_rows = [&](const auto&... row) HWY_ATTR {
      for_vectors(d, first, last, [&](std::int64_t c, auto access) HWY_ATTR {
        V sums[count];
        for (int s = 0; s < count; ++s) {
          sums[s] = hn::LoadU(d, &memory[s][c - first]);
        }
        (row(c, access, sums), ...);
        for (int s = 0; s < count; ++s) {
          hn::StoreU(sums[s], d, &memory[s][c - first]);
        }
      });
    };
    std::int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      add_rows(make(r), make(r + 1), make(r + 2), make(r + 3));
    }
    for (; r < rows; ++r) {
      add_rows(make(r));
    }
    for (int s = 0; s < count; ++s) {
      for_vectors(d, first, last, [&](std::int64_t c, auto access) HWY_ATTR {
        V sum = hn::LoadU(d, &memory[s][c - first]);
        if (accumulate) {
          sum = hn::Add(access.load(d, outs[s] + c), sum);
        }
        access.store(d, sum, outs[s] + c);
      });
    }
  }
}

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
