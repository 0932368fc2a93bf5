// LayerNorm and RMSNorm in fp64.
#include <cmath>

#include "kernels/reference/reference.h"

namespace bayplan::kernels::reference {

void layer_norm_forward(double* y, double* mean, double* rstd, const double* x,
                        const double* weight, const double* bias, std::int64_t rows,
                        std::int64_t width, double eps) {
  const double n = static_cast<double>(width);
  for (std::int64_t r = 0; r < rows; ++r) {
    const double* row = x + r * width;
    double sum = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      sum += row[c];
    }
    mean[r] = sum / n;
    double squares = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      squares += (row[c] - mean[r]) * (row[c] - mean[r]);
    }
    rstd[r] = 1.0 / std::sqrt(squares / n + eps);
    for (std::int64_t c = 0; c < width; ++c) {
      const double shift = bias != nullptr ? bias[c] : 0.0;
      y[r * width + c] = (row[c] - mean[r]) * rstd[r] * weight[c] + shift;
    }
  }
}

void layer_norm_backward_input(double* dx, const double* residual, const double* dy,
                               const double* x, const double* weight, const double* mean,
                               const double* rstd, std::int64_t rows, std::int64_t width) {
  const double n = static_cast<double>(width);
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum_g = 0;
    double sum_gn = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      const double g = dy[r * width + c] * weight[c];
      sum_g += g;
      sum_gn += g * (x[r * width + c] - mean[r]) * rstd[r];
    }
    for (std::int64_t c = 0; c < width; ++c) {
      const std::int64_t i = r * width + c;
      const double g = dy[i] * weight[c];
      const double normed = (x[i] - mean[r]) * rstd[r];
      const double kept = residual != nullptr ? residual[i] : 0.0;
      dx[i] = kept + rstd[r] * (g - sum_g / n - normed * sum_gn / n);
    }
  }
}

void layer_norm_backward_weight(double* dweight, double* dbias, const double* dy, const double* x,
                                const double* mean, const double* rstd, std::int64_t rows,
                                std::int64_t width) {
  for (std::int64_t c = 0; c < width; ++c) {
    dweight[c] = 0;
    dbias[c] = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      dweight[c] += dy[r * width + c] * (x[r * width + c] - mean[r]) * rstd[r];
      dbias[c] += dy[r * width + c];
    }
  }
}

void rms_norm_forward(double* y, double* rstd, const double* x, const double* weight,
                      std::int64_t rows, std::int64_t width, double eps) {
  for (std::int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      squares += x[r * width + c] * x[r * width + c];
    }
    rstd[r] = 1.0 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (std::int64_t c = 0; c < width; ++c) {
      y[r * width + c] = x[r * width + c] * rstd[r] * weight[c];
    }
  }
}

void rms_norm_backward_input(double* dx, const double* residual, const double* dy, const double* x,
                             const double* weight, const double* rstd, std::int64_t rows,
                             std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum_gn = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      sum_gn += dy[r * width + c] * weight[c] * x[r * width + c] * rstd[r];
    }
    for (std::int64_t c = 0; c < width; ++c) {
      const std::int64_t i = r * width + c;
      const double kept = residual != nullptr ? residual[i] : 0.0;
      const double mean_gn = sum_gn / static_cast<double>(width);
      dx[i] = kept + rstd[r] * (dy[i] * weight[c] - x[i] * rstd[r] * mean_gn);
    }
  }
}

void rms_norm_backward_weight(double* dweight, const double* dy, const double* x,
                              const double* rstd, std::int64_t rows, std::int64_t width) {
  for (std::int64_t c = 0; c < width; ++c) {
    dweight[c] = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      dweight[c] += dy[r * width + c] * x[r * width + c] * rstd[r];
    }
  }
}

}  // namespace bayplan::kernels::reference
