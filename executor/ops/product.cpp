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

}  // namespace

void multiply(int threads, DType type, const Matrix& out, const Matrix& a, const Matrix& b) {
  for_each_tile(threads, type, type, out, a, b,
                [&](const Matrix& out_tile, const Matrix& a_part, const Matrix& b_part) {
                  at::Tensor result = view(out_tile, type);
                  at::mm_out(result, view(a_part, type), view(b_part, type));
                });
}

void multiply_accumulate(int threads, DType type, const Matrix& out, const Matrix& a,
                         const Matrix& b) {
  if (type != DType::kBf16) {
    for_each_tile(threads, type, type, out, a, b,
                  [&](const Matrix& out_tile, const Matrix& a_part, const Matrix& b_part) {
                    at::Tensor sum = view(out_tile, type);
                    at::addmm_out(sum, sum, view(a_part, type), view(b_part, type));
                  });
    return;
  }
  for_each_tile(threads, type, DType::kFp32, out, a, b,
                [&](const Matrix& out_tile, const Matrix& a_part, const Matrix& b_part) {
                  const Temporary<kernels::bf16> rounded(out_tile.rows * out_tile.cols);
                  at::Tensor result =
                      view(matrix(rounded.get(), out_tile.rows, out_tile.cols), type);
                  at::mm_out(result, view(a_part, type), view(b_part, type));
                  for (std::int64_t r = 0; r < out_tile.rows; ++r) {
                    kernels::accumulate(static_cast<float*>(out_tile.data) + r * out_tile.stride,
                                        rounded.get() + r * out_tile.cols, {0, out_tile.cols});
                  }
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
