// LayerNorm and RMSNorm over the last dim of a contiguous [rows, width] array, with the backward
// split into input and weight parts so that a pipeline may run them apart. T in {float, double,
// bf16} for activations and weights; statistics and weight gradients are accumulate_t<T>.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace bayplan::kernels {

/// y = (x - mean) * rstd * weight + bias, per row; mean first, then the variance around it
/// (biased), rstd = 1 / sqrt(variance + eps).
///   y, x [rows, width] · weight, bias [width], bias may be null · mean, rstd [rows] out
/// y may be x.
template <class T>
void layer_norm_forward(T* y, accumulate_t<T>* mean, accumulate_t<T>* rstd, const T* x,
                        const T* weight, const T* bias, std::int64_t width, double eps, Range rows);

/// dx = residual + d(layer_norm)/dx applied to dy.
///   dx, dy, x [rows, width] · residual [rows, width] or null · mean, rstd [rows] as saved
/// dx may be residual, dy or x.
template <class T>
void layer_norm_backward_input(T* dx, const T* residual, const T* dy, const T* x, const T* weight,
                               const accumulate_t<T>* mean, const accumulate_t<T>* rstd,
                               std::int64_t width, Range rows);

/// dweight[c] = sum over rows of dy * (x - mean) * rstd, dbias[c] = sum over rows of dy, for c in
/// columns. Rows are added in ascending order starting from zero; with accumulate the total is
/// then added once to what the output holds, else it replaces it.
///   dweight, dbias [width] in/out, dbias may be null · dy, x [rows, width] · mean, rstd [rows]
template <class T>
void layer_norm_backward_weight(accumulate_t<T>* dweight, accumulate_t<T>* dbias, const T* dy,
                                const T* x, const accumulate_t<T>* mean,
                                const accumulate_t<T>* rstd, std::int64_t rows, std::int64_t width,
                                bool accumulate, Range columns);

/// y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps). Shapes as in layer_norm_forward.
template <class T>
void rms_norm_forward(T* y, accumulate_t<T>* rstd, const T* x, const T* weight, std::int64_t width,
                      double eps, Range rows);

/// dx = residual + d(rms_norm)/dx applied to dy; aliasing as in layer_norm_backward_input.
template <class T>
void rms_norm_backward_input(T* dx, const T* residual, const T* dy, const T* x, const T* weight,
                             const accumulate_t<T>* rstd, std::int64_t width, Range rows);

/// dweight[c] = sum over rows of dy * x * rstd; order as in layer_norm_backward_weight.
template <class T>
void rms_norm_backward_weight(accumulate_t<T>* dweight, const T* dy, const T* x,
                              const accumulate_t<T>* rstd, std::int64_t rows, std::int64_t width,
                              bool accumulate, Range columns);

}  // namespace bayplan::kernels
