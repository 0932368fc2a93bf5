// Small memory-bound kernels: residual addition, accumulation of micro-batch gradients, casts,
// scaling and the bias of a linear layer. T in {float, double, bf16} unless said otherwise.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace bayplan::kernels {

/// out = a + b. All [n]; out may be a or b.
template <class T>
void residual_add(T* out, const T* a, const T* b, Range elements);

/// acc += x, in the type of acc. The one accumulate operator of micro-batch gradients.
///   acc [n] in/out · x [n] in, exact widening from bf16
template <class T>
void accumulate(accumulate_t<T>* acc, const T* x, Range elements);

/// Nearest-even from fp32; exact from bf16. out must not overlap x.
void cast(bf16* out, const float* x, Range elements);
void cast(float* out, const bf16* x, Range elements);

/// out = x * factor; out may be x.
template <class T>
void scale(T* out, const T* x, accumulate_t<T> factor, Range elements);

/// out[r, c] = x[r, c] + bias[c]. out, x [rows, width], bias [width]; out may be x.
template <class T>
void add_bias_rows(T* out, const T* x, const T* bias, std::int64_t width, Range rows);

/// dbias[c] = sum over rows of dy[r, c], for c in columns. Rows ascend from zero; with accumulate
/// the total is then added once to what dbias holds, else it replaces it.
///   dbias [width] in/out · dy [rows, width] in
template <class T>
void bias_gradient(accumulate_t<T>* dbias, const T* dy, std::int64_t rows, std::int64_t width,
                   bool accumulate, Range columns);

}  // namespace bayplan::kernels
