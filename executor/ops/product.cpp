#include "executor/ops/product.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "executor/ops/op_arguments.h"
#include "executor/ops/thread_team.h"
#include "kernels/elementwise.h"
#include "planner/core/operators/tiling.h"

namespace bayplan::exec {
namespace {

at::ScalarType scalar_type(DType type) {
  switch (type) {
    case DType::kFp64:
      return at::kDouble;
    case DType::kFp32:
      return at::kFloat;
    case DType::kBf16:
      return at::kBFloat16;
    case DType::kFp16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
      break;
  }
  BAYPLAN_CHECK(false, "no products of this type");
}

at::Tensor view(const Matrix& m, DType type) {
  const std::int64_t row = m.transposed ? 1 : m.stride;
  const std::int64_t col = m.transposed ? m.stride : 1;
  return at::from_blob(m.data, {m.rows, m.cols}, {row, col},
                       at::TensorOptions().dtype(scalar_type(type)));
}

/// Rows or columns [begin, begin + size) of an operand of `type`.
Matrix slice(const Matrix& m, DType type, bool by_rows, std::int64_t begin, std::int64_t size) {
  const std::int64_t step = by_rows != m.transposed ? m.stride : 1;
  Matrix part = m;
  part.data = static_cast<std::byte*>(m.data) + begin * step * dtype_size(type);
  (by_rows ? part.rows : part.cols) = size;
  return part;
}

/// Calls body(out tile, a part, b part) for every tile.
template <class Body>
void for_each_tile(int threads, DType type, DType out_type, const Matrix& out, const Matrix& a,
                   const Matrix& b, const Body& body) {
  BAYPLAN_CHECK(!out.transposed && out.rows == a.rows && out.cols == b.cols && a.cols == b.rows,
                "sizes of a product");
  // A BLAS that threads by itself would split sums, so bits would depend on its thread count.
  BAYPLAN_CHECK(at::get_num_threads() == 1, "the calling thread must hold ATen to one thread");
  const ProductTiles tiles = product_tiles(out.rows, out.cols, a.cols);
  const std::int64_t extent = tiles.by_rows ? out.rows : out.cols;
  parallel_tasks(threads, tiles.count, [&](std::int64_t i) {
    const std::int64_t begin = i * tiles.size;
    const std::int64_t size = std::min(tiles.size, extent - begin);
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    body(slice(out, out_type, tiles.by_rows, begin, size),
         tiles.by_rows ? slice(a, type, true, begin, size) : a,
         tiles.by_rows ? b : slice(b, type, false, begin, size));
  });
}

/// Whether the library's bf16 product uses bf16 instructions. Where it does not, it runs at a
/// tenth of the fp32 rate, and widening the operands is several times faster.
bool has_native_bf16() {
#ifdef __x86_64__
  static const bool native = __builtin_cpu_supports("avx512bf16") != 0;
  return native;
#else
  return false;
#endif
}

/// The operand in fp32, dense and as transposed as it was, at `to`.
Matrix widen(const Matrix& m, float* to) {
  const std::int64_t rows = m.transposed ? m.cols : m.rows;
  const std::int64_t cols = m.transposed ? m.rows : m.cols;
  const auto* from = static_cast<const kernels::bf16*>(m.data);
  for (std::int64_t r = 0; r < rows; ++r) {
    kernels::cast(to + r * cols, from + r * m.stride, {0, cols});
  }
  return {to, m.rows, m.cols, cols, m.transposed};
}

/// bf16 product in fp32: sums over blocks of k in ascending order, then store(row, first column,
/// values, count) for every row of every block of the result.
template <class Store>
void multiply_widened(const Matrix& a, const Matrix& b, const Store& store) {
  constexpr DType type = DType::kBf16;
  const std::int64_t bm = std::min(a.rows, kWidenedRows), bn = std::min(b.cols, kWidenedRows);
  const std::int64_t bk = std::min(a.cols, kWidenedDepth);
  const Temporary<float> wide_a(bm * bk), wide_b(bk * bn), sum(bm * bn);
  for (std::int64_t n = 0; n < b.cols; n += bn) {
    const std::int64_t cols = std::min(bn, b.cols - n);
    for (std::int64_t m = 0; m < a.rows; m += bm) {
      const std::int64_t rows = std::min(bm, a.rows - m);
      for (std::int64_t k = 0; k < a.cols; k += bk) {
        const std::int64_t depth = std::min(bk, a.cols - k);
        const Matrix a_part = slice(slice(a, type, true, m, rows), type, false, k, depth);
        const Matrix b_part = slice(slice(b, type, true, k, depth), type, false, n, cols);
        multiply_block(DType::kFp32, matrix(sum.get(), rows, cols), widen(a_part, wide_a.get()),
                       widen(b_part, wide_b.get()), 1.0, k == 0 ? 0.0 : 1.0);
      }
      for (std::int64_t r = 0; r < rows; ++r) store(m + r, n, sum.get() + r * cols, cols);
    }
  }
}

void multiply_bf16(const Matrix& out, const Matrix& a, const Matrix& b) {
  if (has_native_bf16()) {
    at::Tensor result = view(out, DType::kBf16);
    at::mm_out(result, view(a, DType::kBf16), view(b, DType::kBf16));
    return;
  }
  auto* to = static_cast<kernels::bf16*>(out.data);
  multiply_widened(a, b, [&](std::int64_t r, std::int64_t c, const float* x, std::int64_t n) {
    kernels::cast(to + r * out.stride + c, x, {0, n});
  });
}

void multiply_accumulate_bf16(const Matrix& out, const Matrix& a, const Matrix& b) {
  auto* to = static_cast<float*>(out.data);
  if (has_native_bf16()) {
    const Temporary<kernels::bf16> rounded(out.rows * out.cols);
    at::Tensor result = view(matrix(rounded.get(), out.rows, out.cols), DType::kBf16);
    at::mm_out(result, view(a, DType::kBf16), view(b, DType::kBf16));
    for (std::int64_t r = 0; r < out.rows; ++r) {
      kernels::accumulate(to + r * out.stride, rounded.get() + r * out.cols, {0, out.cols});
    }
    return;
  }
  const Temporary<kernels::bf16> rounded(std::min(out.cols, kWidenedRows));
  multiply_widened(a, b, [&](std::int64_t r, std::int64_t c, const float* x, std::int64_t n) {
    kernels::cast(rounded.get(), x, {0, n});
    kernels::accumulate(to + r * out.stride + c, rounded.get(), {0, n});
  });
}

}  // namespace

void multiply(int threads, DType type, const Matrix& out, const Matrix& a, const Matrix& b) {
  for_each_tile(threads, type, type, out, a, b,
                [&](const Matrix& out_tile, const Matrix& a_part, const Matrix& b_part) {
                  if (type == DType::kBf16) return multiply_bf16(out_tile, a_part, b_part);
                  at::Tensor result = view(out_tile, type);
                  at::mm_out(result, view(a_part, type), view(b_part, type));
                });
}

void multiply_accumulate(int threads, DType type, const Matrix& out, const Matrix& a,
                         const Matrix& b) {
  const DType sum_type = type == DType::kBf16 ? DType::kFp32 : type;
  for_each_tile(threads, type, sum_type, out, a, b,
                [&](const Matrix& out_tile, const Matrix& a_part, const Matrix& b_part) {
                  if (type == DType::kBf16) {
                    return multiply_accumulate_bf16(out_tile, a_part, b_part);
                  }
                  at::Tensor sum = view(out_tile, type);
                  at::addmm_out(sum, sum, view(a_part, type), view(b_part, type));
                });
}

void multiply_block(DType type, const Matrix& out, const Matrix& a, const Matrix& b, double alpha,
                    double beta) {
  BAYPLAN_CHECK(type != DType::kBf16, "bf16 block");
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  at::Tensor result = view(out, type);
  at::addmm_out(result, result, view(a, type), view(b, type), beta, alpha);
}

}  // namespace bayplan::exec
