// AdamW, Adam, SGD and the sum of squares in fp64.
#include <cmath>

#include "kernels/reference/reference.h"

namespace bayplan::kernels::reference {

void adamw_step(const AdamOptions& options, double grad_scale, const double* grad, double* p,
                double* m, double* v, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double g = grad[i] * grad_scale;
    p[i] -= options.lr * options.weight_decay * p[i];
    m[i] = options.beta1 * m[i] + (1 - options.beta1) * g;
    v[i] = options.beta2 * v[i] + (1 - options.beta2) * g * g;
    const double first = m[i] / options.bias_correction1;
    const double second = v[i] / options.bias_correction2;
    p[i] -= options.lr * first / (std::sqrt(second) + options.eps);
  }
}

void adam_step(const AdamOptions& options, double grad_scale, const double* grad, double* p,
               double* m, double* v, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double g = grad[i] * grad_scale + options.weight_decay * p[i];
    m[i] = options.beta1 * m[i] + (1 - options.beta1) * g;
    v[i] = options.beta2 * v[i] + (1 - options.beta2) * g * g;
    const double first = m[i] / options.bias_correction1;
    const double second = v[i] / options.bias_correction2;
    p[i] -= options.lr * first / (std::sqrt(second) + options.eps);
  }
}

void sgd_step(const SgdOptions& options, double grad_scale, const double* grad, double* p,
              double* buffer, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    double g = grad[i] * grad_scale + options.weight_decay * p[i];
    if (buffer != nullptr) {
      buffer[i] = options.momentum * buffer[i] + g;
      g = buffer[i];
    }
    p[i] -= options.lr * g;
  }
}

double sum_of_squares(const double* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    sum += x[i] * x[i];
  }
  return sum;
}

}  // namespace bayplan::kernels::reference
