// Optimizer kernels on flat shards: AdamW, Adam and SGD in one pass over memory, and the fp64 sum
// of squares that gradient clipping needs. Schedules, clipping coefficients and skipped steps are
// decided by the caller.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace bayplan::kernels {

/// One step's coefficients of AdamW and Adam, in double; each derived coefficient (1 - lr *
/// weight_decay, 1 - beta1, lr / bias_correction1, ...) is formed in double and rounded once to the
/// type of the update. bias_correction is 1 - beta^step, see adam_bias_correction().
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double bias_correction1 = 1.0;
  double bias_correction2 = 1.0;
};

/// 1 - beta^step, step counted from 1.
double adam_bias_correction(double beta, std::int64_t step);

/// AdamW on a flat shard, one pass. With g = grad * grad_scale and decoupled decay first:
///   p *= 1 - lr wd;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
///   p -= lr/bc1 * m / (sqrt(v)/sqrt(bc2) + eps)
/// (Loshchilov and Hutter 2019, in the form of torch.optim.AdamW).
///   grad_scale [1] in, read once: turns the sum over tokens into the clipped mean gradient
///   grad [n] in: sum over tokens, not mean; float or bf16 (double for the double update)
///   master, m, v [n] in/out; for fp32 and fp64 training master is the weight itself
///   weight [n] out: nearest-even from master; may be null
/// Arrays must not overlap. Returns false, leaving all untouched, when grad_scale is not finite.
bool adamw_step(const AdamOptions& options, const float* grad_scale, const float* grad,
                float* master, float* m, float* v, bf16* weight, Range elements);
bool adamw_step(const AdamOptions& options, const float* grad_scale, const bf16* grad,
                float* master, float* m, float* v, bf16* weight, Range elements);
bool adamw_step(const AdamOptions& options, const double* grad_scale, const double* grad,
                double* master, double* m, double* v, Range elements);

/// Adam with L2 regularisation on a flat shard: as adamw_step, but the decay joins the gradient
/// and passes through both moments. With g = grad * grad_scale + wd p:
///   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p -= lr/bc1 * m / (sqrt(v)/sqrt(bc2) + eps)
/// (Kingma and Ba 2015, in the form of torch.optim.Adam). Arrays and result as for adamw_step.
bool adam_step(const AdamOptions& options, const float* grad_scale, const float* grad,
               float* master, float* m, float* v, bf16* weight, Range elements);
bool adam_step(const AdamOptions& options, const float* grad_scale, const bf16* grad, float* master,
               float* m, float* v, bf16* weight, Range elements);
bool adam_step(const AdamOptions& options, const double* grad_scale, const double* grad,
               double* master, double* m, double* v, Range elements);

/// Coefficients of SGD; each is rounded once to the type of the update.
struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0.0;
  double weight_decay = 0.0;
};

/// SGD on a flat shard, one pass. With g = grad * grad_scale + wd p:
///   buffer = momentum buffer + g;  p -= lr buffer
/// (torch.optim.SGD without dampening or Nesterov; a buffer that starts as zeros makes the first
/// step's buffer g, as there.)
///   buffer [n] in/out; null: plain SGD, p -= lr g, and options.momentum is not read
///   grad_scale, grad, master, weight: as for adamw_step
/// Arrays must not overlap. Returns false, leaving all untouched, when grad_scale is not finite.
bool sgd_step(const SgdOptions& options, const float* grad_scale, const float* grad, float* master,
              float* buffer, bf16* weight, Range elements);
bool sgd_step(const SgdOptions& options, const float* grad_scale, const bf16* grad, float* master,
              float* buffer, bf16* weight, Range elements);
bool sgd_step(const SgdOptions& options, const double* grad_scale, const double* grad,
              double* master, double* buffer, Range elements);

/// Elements in one block of sum_of_squares: 16 KiB of fp32, so that a block stays in L1.
inline constexpr std::int64_t kSumBlock = 4096;

/// Blocks of an array of n elements; the last one may be short.
constexpr std::int64_t sum_blocks(std::int64_t n) { return (n + kSumBlock - 1) / kSumBlock; }

/// partial[b] = sum of x[i]^2 over block b = [4096 b, min(n, 4096 (b+1))), for b in blocks.
///   partial [sum_blocks(n)] fp64 out · x [n] in, T in {float, double, bf16}
/// Squares and sums are fp64 (the square of a float is exact).
template <class T>
void sum_of_squares_blocks(double* partial, const T* x, std::int64_t n, Range blocks);

/// Sum of x[i]^2 in fp64: the block sums of sum_of_squares_blocks(), added in ascending order.
/// The order depends on n only, so splitting the blocks among threads and adding the partials
/// with sum_ascending() gives the same bits.
template <class T>
double sum_of_squares(const T* x, std::int64_t n);

/// x[0] + x[1] + ... in fp64, ascending. For block sums and for row losses. T: float, double.
template <class T>
double sum_ascending(const T* x, std::int64_t n);

}  // namespace bayplan::kernels
