// The kernels of kernels/*.h in fp64, written to be obviously right: one loop per formula, no
// attention to speed or memory. They are what the tests compare with, and nothing else calls them.
// Arguments have the meaning and shape of the kernel of the same name, over all rows or elements.
#pragma once

#include <cstdint>

#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/optim.h"
#include "kernels/philox.h"
#include "kernels/rope.h"

namespace bayplan::kernels::reference {

void adamw_step(const AdamOptions& options, double grad_scale, const double* grad, double* p,
                double* m, double* v, std::int64_t n);
void adam_step(const AdamOptions& options, double grad_scale, const double* grad, double* p,
               double* m, double* v, std::int64_t n);
/// buffer: null without momentum.
void sgd_step(const SgdOptions& options, double grad_scale, const double* grad, double* p,
              double* buffer, std::int64_t n);
double sum_of_squares(const double* x, std::int64_t n);

void layer_norm_forward(double* y, double* mean, double* rstd, const double* x,
                        const double* weight, const double* bias, std::int64_t rows,
                        std::int64_t width, double eps);
void layer_norm_backward_input(double* dx, const double* residual, const double* dy,
                               const double* x, const double* weight, const double* mean,
                               const double* rstd, std::int64_t rows, std::int64_t width);
void layer_norm_backward_weight(double* dweight, double* dbias, const double* dy, const double* x,
                                const double* mean, const double* rstd, std::int64_t rows,
                                std::int64_t width);
void rms_norm_forward(double* y, double* rstd, const double* x, const double* weight,
                      std::int64_t rows, std::int64_t width, double eps);
void rms_norm_backward_input(double* dx, const double* residual, const double* dy, const double* x,
                             const double* weight, const double* rstd, std::int64_t rows,
                             std::int64_t width);
void rms_norm_backward_weight(double* dweight, const double* dy, const double* x,
                              const double* rstd, std::int64_t rows, std::int64_t width);

double gelu_tanh(double x);
double gelu_tanh_derivative(double x);
double silu(double x);
double silu_derivative(double x);

/// Rotates by direction (+1 or -1) times the angle position * theta^(-2 i / head_dim).
void rope(double* out, const double* x, const RopeShape& shape, std::int64_t tokens, double theta,
          double direction);

void embedding_forward(double* out, const double* wte, const double* wpe, const std::int32_t* ids,
                       const EmbeddingShape& shape, std::int64_t tokens);
void embedding_backward_weight(double* dwte, double* dwpe, const double* dout,
                               const std::int32_t* ids, const EmbeddingShape& shape,
                               std::int64_t tokens);

void cross_entropy_forward(double* loss, double* lse, const double* logits,
                           const std::int32_t* labels, const LogitsShape& shape, std::int64_t rows);
void cross_entropy_backward(double* logits, const double* lse, const std::int32_t* labels,
                            const LogitsShape& shape, double seed, std::int64_t rows);

/// Uniform and standard normal of one global element, from the scalar block function.
double philox_uniform(const PhiloxStream& stream, std::uint64_t element);
double philox_normal(const PhiloxStream& stream, std::uint64_t element);

}  // namespace bayplan::kernels::reference
