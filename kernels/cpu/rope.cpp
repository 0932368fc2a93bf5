// Rotary position embedding. Pairs (x[i], x[i + head_dim / 2]) rotate by a table angle.
#include "kernels/rope.h"

#include <cmath>

#include "kernels/cpu/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"

#ifndef BAYPLAN_KERNELS_CPU_ROPE_TABLE_
#define BAYPLAN_KERNELS_CPU_ROPE_TABLE_
namespace bayplan::kernels {
namespace {
template <class T>
struct RopeTable {
  decltype(&rope_forward<T>) forward;
  decltype(&rope_backward<T>) backward;
};
}  // namespace
}  // namespace bayplan::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {

template <bool transposed, class T>
void rotate(T* out, const T* x, const accumulate_t<T>* cos, const accumulate_t<T>* sin,
            const RopeShape& shape, Range tokens) {
  const Compute<T> d;
  const std::int64_t half = shape.head_dim / 2;
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
    const std::int64_t position = shape.positions != nullptr ? shape.positions[t] : t % shape.seq;
    const accumulate_t<T>* cos_row = cos + position * half;
    const accumulate_t<T>* sin_row = sin + position * half;
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const T* from = x + t * shape.x_stride + head * shape.head_dim;
      T* to = out + t * shape.out_stride + head * shape.head_dim;
      for_vectors(d, 0, half, [&](std::int64_t i, auto access) HWY_ATTR {
        const auto c = access.load(d, cos_row + i);
        auto s = access.load(d, sin_row + i);
        if constexpr (transposed) {
          s = hn::Neg(s);
        }
        const auto a = access.load(d, from + i);
        const auto b = access.load(d, from + half + i);
        access.store(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), to + i);
        access.store(d, hn::MulAdd(a, s, hn::Mul(b, c)), to + half + i);
      });
    }
  }
}

template <class T>
constexpr RopeTable<T> make_table() {
  return {&rotate<false, T>, &rotate<true, T>};
}
BAYPLAN_TARGET_TABLES(RopeTable, rope_functions)

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bayplan::kernels {
BAYPLAN_EXPORT_TABLES(RopeTable, rope_functions)

template <class A>
void rope_table(A* cos, A* sin, std::int64_t positions, std::int64_t head_dim, double theta) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    const double frequency = std::pow(theta, exponent);
    for (std::int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      cos[p * half + i] = static_cast<A>(std::cos(angle));
      sin[p * half + i] = static_cast<A>(std::sin(angle));
    }
  }
}

template <class T>
void rope_forward(T* out, const T* x, const accumulate_t<T>* cos, const accumulate_t<T>* sin,
                  const RopeShape& shape, Range tokens) {
  rope_functions<T>().forward(out, x, cos, sin, shape, tokens);
}

template <class T>
void rope_backward(T* dx, const T* dout, const accumulate_t<T>* cos, const accumulate_t<T>* sin,
                   const RopeShape& shape, Range tokens) {
  rope_functions<T>().backward(dx, dout, cos, sin, shape, tokens);
}

template void rope_table<float>(float*, float*, std::int64_t, std::int64_t, double);
template void rope_table<double>(double*, double*, std::int64_t, std::int64_t, double);
BAYPLAN_INSTANTIATE(rope_forward)
BAYPLAN_INSTANTIATE(rope_backward)

}  // namespace bayplan::kernels
#endif
