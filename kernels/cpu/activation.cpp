// GELU (tanh form) and SwiGLU. Both are x times a sigmoid; with e = exp(-argument),
// s = 1 / (1 + e) and 1 - s = e s, so neither tail cancels.
#include "kernels/activation.h"

#include "kernels/cpu/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/simd-inl.h"

#ifndef BAYPLAN_KERNELS_CPU_ACTIVATION_TABLE_
#define BAYPLAN_KERNELS_CPU_ACTIVATION_TABLE_
namespace bayplan::kernels {
namespace {
template <class T>
struct ActivationTable {
  decltype(&gelu_tanh_forward<T>) gelu_forward_;
  decltype(&gelu_tanh_backward<T>) gelu_backward_;
  decltype(&swiglu_forward<T>) swiglu_forward_;
  decltype(&swiglu_backward<T>) swiglu_backward_;
};

// 2 sqrt(2 / pi), and that times 0.044715: tanh(u) = 2 sigmoid(2u) - 1.
constexpr double kGeluLinear = 1.5957691216057308;
constexpr double kGeluCubic = kGeluLinear * 0.044715;
}  // namespace
}  // namespace bayplan::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {

template <class D>
HWY_INLINE hn::Vec<D> constant(D d, double value) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(value));
}

/// e^(-2u) with 2u = kGeluLinear x + kGeluCubic x^3, for a given x^2.
template <class D>
HWY_INLINE hn::Vec<D> gelu_exponential(D d, hn::Vec<D> x, hn::Vec<D> x2) {
  const auto slope = hn::MulAdd(x2, constant(d, -kGeluCubic), constant(d, -kGeluLinear));
  return exp_for_sigmoid(d, hn::Mul(x, slope));
}

template <class T>
void gelu_forward(T* out, const T* x, Range elements) {
  const Compute<T> d;
  const auto one = constant(d, 1.0);
  for_vectors(d, elements.begin, elements.end, [&](std::int64_t i, auto access) HWY_ATTR {
    const auto value = access.load(d, x + i);
    const auto e = gelu_exponential(d, value, hn::Mul(value, value));
    access.store(d, hn::Div(value, hn::Add(one, e)), out + i);
  });
}

// (x s)' = s + x s (1 - s) (2u)' = s (1 + x e s (2u)')
template <class T>
void gelu_backward(T* dx, const T* dout, const T* x, Range elements) {
  const Compute<T> d;
  const auto one = constant(d, 1.0);
  for_vectors(d, elements.begin, elements.end, [&](std::int64_t i, auto access) HWY_ATTR {
    const auto value = access.load(d, x + i);
    const auto x2 = hn::Mul(value, value);
    const auto e = gelu_exponential(d, value, x2);
    const auto s = hn::Div(one, hn::Add(one, e));
    const auto slope = hn::MulAdd(x2, constant(d, 3 * kGeluCubic), constant(d, kGeluLinear));
    const auto complement = hn::Mul(e, s);
    const auto bend = hn::Mul(hn::Mul(value, slope), complement);
    const auto derivative = hn::Mul(s, hn::Add(one, bend));
    access.store(d, hn::Mul(access.load(d, dout + i), derivative), dx + i);
  });
}

template <class T>
void swiglu_rows(Rows<T> out, Rows<const T> gate, Rows<const T> up, std::int64_t width,
                 Range rows) {
  const Compute<T> d;
  const auto one = constant(d, 1.0);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const T* gate_row = gate.data + r * gate.stride;
    const T* up_row = up.data + r * up.stride;
    T* out_row = out.data + r * out.stride;
    for_vectors(d, 0, width, [&](std::int64_t c, auto access) HWY_ATTR {
      const auto g = access.load(d, gate_row + c);
      const auto silu = hn::Div(g, hn::Add(one, exp_for_sigmoid(d, hn::Neg(g))));
      access.store(d, hn::Mul(silu, access.load(d, up_row + c)), out_row + c);
    });
  }
}

// silu'(g) = s + g s (1 - s) = s (1 + g e s)
template <class T>
void swiglu_rows_backward(Rows<T> dgate, Rows<T> dup, Rows<const T> dout, Rows<const T> gate,
                          Rows<const T> up, std::int64_t width, Range rows) {
  const Compute<T> d;
  const auto one = constant(d, 1.0);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const T* gate_row = gate.data + r * gate.stride;
    const T* up_row = up.data + r * up.stride;
    const T* dout_row = dout.data + r * dout.stride;
    T* dgate_row = dgate.data + r * dgate.stride;
    T* dup_row = dup.data + r * dup.stride;
    for_vectors(d, 0, width, [&](std::int64_t c, auto access) HWY_ATTR {
      const auto g = access.load(d, gate_row + c);
      const auto dy = access.load(d, dout_row + c);
      const auto dy_up = hn::Mul(dy, access.load(d, up_row + c));
      const auto e = exp_for_sigmoid(d, hn::Neg(g));
      const auto s = hn::Div(one, hn::Add(one, e));
      const auto bend = hn::Mul(g, hn::Mul(e, s));
      const auto derivative = hn::Mul(s, hn::Add(one, bend));
      access.store(d, hn::Mul(dy_up, derivative), dgate_row + c);
      access.store(d, hn::Mul(dy, hn::Mul(g, s)), dup_row + c);
    });
  }
}

template <class T>
constexpr ActivationTable<T> make_table() {
  return {&gelu_forward<T>, &gelu_backward<T>, &swiglu_rows<T>, &swiglu_rows_backward<T>};
}
BAYPLAN_TARGET_TABLES(ActivationTable, activation_table)

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bayplan::kernels {
BAYPLAN_EXPORT_TABLES(ActivationTable, activation_table)

template <class T>
void gelu_tanh_forward(T* out, const T* x, Range elements) {
  activation_table<T>().gelu_forward_(out, x, elements);
}

template <class T>
void gelu_tanh_backward(T* dx, const T* dout, const T* x, Range elements) {
  activation_table<T>().gelu_backward_(dx, dout, x, elements);
}

template <class T>
void swiglu_forward(Rows<T> out, Rows<const T> gate, Rows<const T> up, std::int64_t width,
                    Range rows) {
  activation_table<T>().swiglu_forward_(out, gate, up, width, rows);
}

template <class T>
void swiglu_backward(Rows<T> dgate, Rows<T> dup, Rows<const T> dout, Rows<const T> gate,
                     Rows<const T> up, std::int64_t width, Range rows) {
  activation_table<T>().swiglu_backward_(dgate, dup, dout, gate, up, width, rows);
}

BAYPLAN_INSTANTIATE(gelu_tanh_forward)
BAYPLAN_INSTANTIATE(gelu_tanh_backward)
BAYPLAN_INSTANTIATE(swiglu_forward)
BAYPLAN_INSTANTIATE(swiglu_backward)

}  // namespace bayplan::kernels
#endif
