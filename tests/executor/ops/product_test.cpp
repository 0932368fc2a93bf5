#include "executor/ops/product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>

#include "planner/core/operators/tiling.h"

namespace bayplan::exec {
namespace {

TEST(ProductTiles, CoverTheLongerExtentOnce) {
  for (const std::int64_t m : {1, 31, 128, 500, 512, 1024, 50257}) {
    for (const std::int64_t n : {1, 97, 256, 3000}) {
      const ProductTiles tiles = product_tiles(m, n, 4096);
      const std::int64_t extent = tiles.by_rows ? m : n;
      EXPECT_EQ(extent, std::max(m, n));
      EXPECT_LT((tiles.count - 1) * tiles.size, extent);
      EXPECT_GE(tiles.count * tiles.size, extent);
    }
  }
}

// [1024, 256] · [256, 768]: 2^20 multiply-adds are passed, 1024 >= 512 gives four tiles of 256.
TEST(ProductTiles, DependOnTheShapeAlone) {
  const ProductTiles tiles = product_tiles(1024, 768, 256);
  EXPECT_TRUE(tiles.by_rows);
  EXPECT_EQ(tiles.count, 4);
  EXPECT_EQ(tiles.size, 256);
}

struct Case {
  std::int64_t m, n, k;
};

/// Sizes for which a threaded BLAS was seen to change bits with its thread count, and plain ones.
constexpr Case kCases[] = {{230, 191, 247}, {59, 53, 2040}, {21, 67, 4394}, {187, 53, 219},
                           {520, 96, 128},  {97, 64, 512},  {1, 33, 5},     {64, 1030, 33}};

TEST(Product, ThreadsDoNotChangeABit) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const DType dtype = type == at::kFloat    ? DType::kFp32
                        : type == at::kDouble ? DType::kFp64
                                              : DType::kBf16;
    for (const Case& c : kCases) {
      at::Generator generator = at::detail::createCPUGenerator(5);
      const at::Tensor a = at::randn({c.m, c.k}, generator, at::kDouble).to(type);
      const at::Tensor b = at::randn({c.k, c.n}, generator, at::kDouble).to(type);
      const at::Tensor start =
          at::randn({c.m, c.n}, generator, type == at::kDouble ? at::kDouble : at::kFloat);
      at::Tensor products[3], sums[3];
      for (int t = 0; t < 3; ++t) {
        products[t] = at::empty({c.m, c.n}, type);
        sums[t] = start.clone();
        multiply(t + 1, dtype, matrix(products[t].data_ptr(), c.m, c.n),
                 matrix(a.data_ptr(), c.m, c.k), matrix(b.data_ptr(), c.k, c.n));
        multiply_accumulate(t + 1, dtype, matrix(sums[t].data_ptr(), c.m, c.n),
                            matrix(a.data_ptr(), c.m, c.k), matrix(b.data_ptr(), c.k, c.n));
        EXPECT_EQ(std::memcmp(products[0].data_ptr(), products[t].data_ptr(), products[0].nbytes()),
                  0)
            << c.m << " " << c.n << " " << c.k << " " << type;
        EXPECT_EQ(std::memcmp(sums[0].data_ptr(), sums[t].data_ptr(), sums[0].nbytes()), 0)
            << c.m << " " << c.n << " " << c.k << " " << type;
      }
      // bf16 rounds the product before it is added to the fp32 sum.
      const at::Tensor want = start + products[0].to(start.scalar_type());
      EXPECT_LE((sums[0] - want).abs().max().item<double>(),
                (type == at::kDouble ? 1e-13 : 1e-5) * want.abs().max().item<double>());
    }
  }
}

TEST(Product, TransposedOperandsAreReadInPlace) {
  const at::Tensor x = at::randn({70, 40}, at::kDouble), w = at::randn({300, 40}, at::kDouble);
  const at::Tensor y = at::empty({70, 300}, at::kDouble);
  multiply(2, DType::kFp64, matrix(y.data_ptr(), 70, 300), matrix(x.data_ptr(), 70, 40),
           transpose(w.data_ptr(), 40, 300));
  EXPECT_LE((y - at::matmul(x, w.t())).abs().max().item<double>(), 1e-12);
}

}  // namespace
}  // namespace bayplan::exec
