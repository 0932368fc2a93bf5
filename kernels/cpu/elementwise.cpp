// Element-by-element kernels and the bias of a linear layer: bound by memory throughout.
#include "kernels/elementwise.h"

#include "kernels/cpu/dispatch.h"
#include "kernels/ranked_sum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/column_sum-inl.h"
#include "kernels/cpu/simd-inl.h"

#ifndef BAYPLAN_KERNELS_CPU_ELEMENTWISE_TABLE_
#define BAYPLAN_KERNELS_CPU_ELEMENTWISE_TABLE_
namespace bayplan::kernels {
namespace {
template <class T>
struct ElementwiseTable {
  decltype(&residual_add<T>) residual_add_;
  decltype(&accumulate<T>) accumulate_;
  decltype(&scale<T>) scale_;
  decltype(&add_bias_rows<T>) add_bias_rows_;
  decltype(&bias_gradient<T>) bias_gradient_;
  decltype(&sum_in_rank_order<T>) sum_in_rank_order_;
};
}  // namespace
}  // namespace bayplan::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {

template <class T>
void add(T* out, const T* a, const T* b, Range elements) {
  const Compute<T> d;
  for_vectors(d, elements.begin, elements.end, [&](std::int64_t i, auto access) HWY_ATTR {
    access.store(d, hn::Add(access.load(d, a + i), access.load(d, b + i)), out + i);
  });
}

template <class T>
void add_into(accumulate_t<T>* acc, const T* x, Range elements) {
  const Compute<T> d;
  for_vectors(d, elements.begin, elements.end, [&](std::int64_t i, auto access) HWY_ATTR {
    access.store(d, hn::Add(access.load(d, acc + i), access.load(d, x + i)), acc + i);
  });
}

template <class T>
void multiply(T* out, const T* x, accumulate_t<T> factor, Range elements) {
  const Compute<T> d;
  const auto factor_v = hn::Set(d, factor);
  for_vectors(d, elements.begin, elements.end, [&](std::int64_t i, auto access) HWY_ATTR {
    access.store(d, hn::Mul(access.load(d, x + i), factor_v), out + i);
  });
}

template <class T>
void add_bias(T* out, const T* x, const T* bias, std::int64_t width, Range rows) {
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    add(out + r * width, x + r * width, bias, Range{0, width});
  }
}

template <class T>
void sum_bias(accumulate_t<T>* dbias, const T* dy, std::int64_t rows, std::int64_t width,
              bool accumulate, Range columns) {
  const Compute<T> d;
  column_sums<1>(d, rows, columns, accumulate, {dbias}, [&](std::int64_t r) HWY_ATTR {
    const T* dy_row = dy + r * width;
    return [=](std::int64_t c, auto access, auto* sums)
               HWY_ATTR { sums[0] = hn::Add(sums[0], access.load(d, dy_row + c)); };
  });
}

template <class T>
void sum_ranks(T* out, const T* const* inputs, int ranks, Range elements) {
  const Compute<T> d;
  for_vectors(d, elements.begin, elements.end, [&](std::int64_t i, auto access) HWY_ATTR {
    auto sum = access.load(d, inputs[0] + i);
    for (int r = 1; r < ranks; ++r) {
      sum = hn::Add(sum, access.load(d, inputs[r] + i));
    }
    access.store(d, sum, out + i);
  });
}

template <class Out, class In>
void convert(Out* out, const In* x, Range elements) {
  const Compute<float> d;
  for_vectors(d, elements.begin, elements.end, [&](std::int64_t i, auto access) HWY_ATTR {
    access.store(d, access.load(d, x + i), out + i);
  });
}

void narrow(bf16* out, const float* x, Range elements) { convert(out, x, elements); }
void widen(float* out, const bf16* x, Range elements) { convert(out, x, elements); }

template <class T>
constexpr ElementwiseTable<T> make_table() {
  return {&add<T>, &add_into<T>, &multiply<T>, &add_bias<T>, &sum_bias<T>, &sum_ranks<T>};
}
BAYPLAN_TARGET_TABLES(ElementwiseTable, elementwise_table)

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bayplan::kernels {
BAYPLAN_EXPORT_TABLES(ElementwiseTable, elementwise_table)

namespace {
HWY_EXPORT(narrow);
HWY_EXPORT(widen);
}  // namespace

template <class T>
void residual_add(T* out, const T* a, const T* b, Range elements) {
  elementwise_table<T>().residual_add_(out, a, b, elements);
}

template <class T>
void accumulate(accumulate_t<T>* acc, const T* x, Range elements) {
  elementwise_table<T>().accumulate_(acc, x, elements);
}

void cast(bf16* out, const float* x, Range elements) {
  HWY_DYNAMIC_DISPATCH(narrow)(out, x, elements);
}

void cast(float* out, const bf16* x, Range elements) {
  HWY_DYNAMIC_DISPATCH(widen)(out, x, elements);
}

template <class T>
void scale(T* out, const T* x, accumulate_t<T> factor, Range elements) {
  elementwise_table<T>().scale_(out, x, factor, elements);
}

template <class T>
void add_bias_rows(T* out, const T* x, const T* bias, std::int64_t width, Range rows) {
  elementwise_table<T>().add_bias_rows_(out, x, bias, width, rows);
}

template <class T>
void bias_gradient(accumulate_t<T>* dbias, const T* dy, std::int64_t rows, std::int64_t width,
                   bool accumulate, Range columns) {
  elementwise_table<T>().bias_gradient_(dbias, dy, rows, width, accumulate, columns);
}

template <class T>
void sum_in_rank_order(T* out, const T* const* inputs, int ranks, Range elements) {
  elementwise_table<T>().sum_in_rank_order_(out, inputs, ranks, elements);
}

BAYPLAN_INSTANTIATE(residual_add)
BAYPLAN_INSTANTIATE(accumulate)
BAYPLAN_INSTANTIATE(scale)
BAYPLAN_INSTANTIATE(add_bias_rows)
BAYPLAN_INSTANTIATE(bias_gradient)
BAYPLAN_INSTANTIATE(sum_in_rank_order)

}  // namespace bayplan::kernels
#endif
