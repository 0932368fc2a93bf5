// Matrix products for the operators: the one place that calls a BLAS through ATen. Cut into tiles
// by shape alone (planner/core/operators/tiling.h), so results do not depend on threads.
#pragma once

#include <cstdint>

#include "planner/core/dtype.h"

namespace bayplan::exec {

/// A [rows, cols] operand, rows `stride` elements apart. `transposed` means that memory holds
/// [cols, rows] and the operand is its transpose.
struct Matrix {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;
  bool transposed = false;
};

inline Matrix matrix(void* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols, cols, false};
}
/// The transpose of a dense [cols, rows] array.
inline Matrix transpose(void* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols, rows, true};
}

/// out = a · b, all of `type`; out not transposed. bf16 is rounded once.
void multiply(int threads, DType type, const Matrix& out, const Matrix& a, const Matrix& b);

/// out += a · b. `out` is fp32 for bf16 operands: each product is rounded to bf16, then added.
void multiply_accumulate(int threads, DType type, const Matrix& out, const Matrix& a,
                         const Matrix& b);

/// out = alpha · a · b + beta · out on the calling thread, in one call. fp32 and fp64 only.
void multiply_block(DType type, const Matrix& out, const Matrix& a, const Matrix& b, double alpha,
                    double beta);

}  // namespace bayplan::exec
