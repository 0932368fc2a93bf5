// Fused softmax cross-entropy. Forward reads a row twice (maximum, then sum of exponentials; a
// GPT-2 row of 50257 floats is 196 KiB and stays in L2); backward rewrites it in one pass.
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/simd-inl.h"

#ifndef BAYPLAN_KERNELS_CPU_CROSS_ENTROPY_TABLE_
#define BAYPLAN_KERNELS_CPU_CROSS_ENTROPY_TABLE_
namespace bayplan::kernels {
namespace {
template <class T>
struct CrossEntropyTable {
  decltype(&cross_entropy_forward<T>) forward;
  decltype(&cross_entropy_backward<T>) backward;
};

/// Columns whose exponentials are summed in the type of the lanes before joining the row's fp64
/// total: 64 terms a lane, so that the rounding of a long row does not grow with it.
constexpr std::int64_t kExpBlock = 2048;

/// Column of the label in this shard, or -1.
inline std::int64_t label_column(const LogitsShape& shape, std::int32_t label) {
  const std::int64_t column = std::int64_t{label} - shape.first_class;
  return label != kIgnoreLabel && column >= 0 && column < shape.columns ? column : -1;
}
}  // namespace
}  // namespace bayplan::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {

/// Maximum of a row; what a NaN does to it does not matter, the sum will be NaN.
template <class D, class T>
HWY_INLINE hn::TFromD<D> row_maximum(D d, const T* row, std::int64_t columns) {
  using A = hn::TFromD<D>;
  constexpr int kVectors = 4;
  const auto lowest = hn::Set(d, -std::numeric_limits<A>::infinity());
  hn::Vec<D> best[kVectors] = {lowest, lowest, lowest, lowest};
  std::int64_t c = 0;
  for (; c + kVectors * lanes(d) <= columns; c += kVectors * lanes(d)) {
    for (int k = 0; k < kVectors; ++k) {
      best[k] = hn::Max(best[k], load(d, row + c + k * lanes(d)));
    }
  }
  for_vectors(d, c, columns, [&](std::int64_t at, auto access) HWY_ATTR {
    best[0] = hn::Max(best[0], access.keep(d, access.load(d, row + at), lowest));
  });
  const auto all = hn::Max(hn::Max(best[0], best[1]), hn::Max(best[2], best[3]));
  return hn::GetLane(hn::MaxOfLanes(d, all));
}

template <class T>
void forward(accumulate_t<T>* loss, accumulate_t<T>* lse, accumulate_t<T>* label_logit,
             const T* logits, const std::int32_t* labels, const LogitsShape& shape, Range rows) {
  using A = accumulate_t<T>;
  const Compute<T> d;
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const T* row = logits + r * shape.stride;
    const A maximum = row_maximum(d, row, shape.columns);
    const auto maximum_v = hn::Set(d, maximum);
    double total = 0;
    for (std::int64_t first = 0; first < shape.columns; first += kExpBlock) {
      const std::int64_t count = std::min(kExpBlock, shape.columns - first);
      const T* block = row + first;
      total += double{row_sum(d, count, [&](std::int64_t c, auto access, auto* sums) HWY_ATTR {
        const auto e = HWY_NAMESPACE::exp(d, hn::Sub(access.load(d, block + c), maximum_v));
        sums[0] = hn::Add(sums[0], access.keep(d, e, hn::Zero(d)));
      })};
    }
    const double row_lse = double{maximum} + std::log(total);
    const std::int64_t column = label_column(shape, labels[r]);
    const A label_value = column < 0 ? A{0} : hn::GetLane(Part{1}.load(d, row + column));
    lse[r] = static_cast<A>(row_lse);
    if (label_logit != nullptr) {
      label_logit[r] = label_value;
    }
    if (loss != nullptr) {
      const bool ignored = labels[r] == kIgnoreLabel;
      loss[r] = ignored ? A{0} : static_cast<A>(row_lse - double{label_value});
    }
  }
}

template <class T>
void backward(T* logits, const accumulate_t<T>* lse, const std::int32_t* labels,
              const LogitsShape& shape, accumulate_t<T> seed, Range rows) {
  const Compute<T> d;
  const auto seed_v = hn::Set(d, seed);
  const auto one = hn::Set(d, accumulate_t<T>{1});
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    T* row = logits + r * shape.stride;
    if (labels[r] == kIgnoreLabel) {
      std::fill(row, row + shape.stride, T{});
      continue;
    }
    const auto lse_v = hn::Set(d, lse[r]);
    const auto probability = [&](std::int64_t c, auto access) HWY_ATTR {
      return HWY_NAMESPACE::exp(d, hn::Sub(access.load(d, row + c), lse_v));
    };
    const std::int64_t column = label_column(shape, labels[r]);
    auto label_gradient = hn::Zero(d);
    if (column >= 0) {
      label_gradient = hn::Mul(hn::Sub(probability(column, Part{1}), one), seed_v);
    }
    for_vectors(d, 0, shape.columns, [&](std::int64_t c, auto access) HWY_ATTR {
      access.store(d, hn::Mul(probability(c, access), seed_v), row + c);
    });
    if (column >= 0) {
      Part{1}.store(d, label_gradient, row + column);
    }
    std::fill(row + shape.columns, row + shape.stride, T{});
  }
}

template <class T>
constexpr CrossEntropyTable<T> make_table() {
  return {&forward<T>, &backward<T>};
}
BAYPLAN_TARGET_TABLES(CrossEntropyTable, cross_entropy_table)

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bayplan::kernels {
BAYPLAN_EXPORT_TABLES(CrossEntropyTable, cross_entropy_table)

template <class T>
void cross_entropy_forward(accumulate_t<T>* loss, accumulate_t<T>* lse,
                           accumulate_t<T>* label_logit, const T* logits,
                           const std::int32_t* labels, const LogitsShape& shape, Range rows) {
  cross_entropy_table<T>().forward(loss, lse, label_logit, logits, labels, shape, rows);
}

template <class T>
void cross_entropy_backward(T* logits, const accumulate_t<T>* lse, const std::int32_t* labels,
                            const LogitsShape& shape, accumulate_t<T> seed, Range rows) {
  cross_entropy_table<T>().backward(logits, lse, labels, shape, seed, rows);
}

BAYPLAN_INSTANTIATE(cross_entropy_forward)
BAYPLAN_INSTANTIATE(cross_entropy_backward)

}  // namespace bayplan::kernels
#endif
