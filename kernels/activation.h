// Pointwise activations of the MLP: tanh-approximated GELU and SwiGLU, forward and
// backward_input. T in {float, double, bf16}. Error of the float exponential: see
// kernels/cpu/simd-inl.h.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace bayplan::kernels {

/// out = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), computed as x * sigmoid(2u), which
/// keeps relative accuracy for negative x. out, x [n]; out may be x.
template <class T>
void gelu_tanh_forward(T* out, const T* x, Range elements);

/// dx = dout * gelu_tanh'(x). dx, dout, x [n]; dx may be dout or x.
template <class T>
void gelu_tanh_backward(T* dx, const T* dout, const T* x, Range elements);

/// A [rows, width] array whose rows lie `stride` elements apart. A packed projection
/// [rows, 2 * ffn], gate first, is {x, 2 * ffn} and {x + ffn, 2 * ffn}.
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t stride = 0;
};

/// out = silu(gate) * up, silu(g) = g * sigmoid(g). All [rows, width]; out may be gate or up.
template <class T>
void swiglu_forward(Rows<T> out, Rows<const T> gate, Rows<const T> up, std::int64_t width,
                    Range rows);

/// dgate = dout * up * silu'(gate), dup = dout * silu(gate). All [rows, width]. dgate may be
/// gate, dup may be up, and either may be dout; dgate and dup must not overlap.
template <class T>
void swiglu_backward(Rows<T> dgate, Rows<T> dup, Rows<const T> dout, Rows<const T> gate,
                     Rows<const T> up, std::int64_t width, Range rows);

}  // namespace bayplan::kernels
