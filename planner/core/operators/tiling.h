// How CPU operators cut their work, as far as it decides their workspace; shared by the operator
// table and by executor/ops. A matrix product [m,k]·[k,n] is cut into tiles that depend on the
// shape alone, each computed by one thread, so no result depends on the thread count. (A BLAS
// splits sums by its thread count: with odd sizes about one product in ten changed its last bits.)
#pragma once

#include <algorithm>
#include <cstdint>

#include "planner/core/dtype.h"
#include "planner/core/units.h"

namespace bayplan {

struct ProductTiles {
  bool by_rows = true;  // cut along m, else along n
  std::int64_t size = 0;
  std::int64_t count = 1;
};

/// Cuts the longer of m and n. Tiles of 128 and more run within a few percent of one product.
constexpr ProductTiles product_tiles(std::int64_t m, std::int64_t n, std::int64_t k) {
  const bool by_rows = m >= n;
  const std::int64_t extent = by_rows ? m : n;
  std::int64_t pieces = extent >= 8192   ? 16
                        : extent >= 4096 ? 8
                        : extent >= 512  ? 4
                        : extent >= 128  ? 2
                                         : 1;
  if (m * n * k < (std::int64_t{1} << 20)) pieces = 1;  // under a tenth of a millisecond
  const std::int64_t size = pieces == 1 ? extent : round_up(ceil_div(extent, pieces), 32);
  return {by_rows, size,
          ceil_div(std::max<std::int64_t>(extent, 1), std::max<std::int64_t>(size, 1))};
}

/// Bytes with the header and alignment that a temporary takes in a workspace region.
constexpr std::int64_t kTemporaryAlignment = 64;
constexpr std::int64_t temporary(std::int64_t bytes) {
  return round_up(bytes, kTemporaryAlignment) + kTemporaryAlignment;
}

/// A bf16 product on a CPU without bf16 instructions works in fp32, on blocks of its operands that
/// are widened one at a time: [512, 1024] · [1024, 512] keeps conversion at a few percent.
constexpr std::int64_t kWidenedRows = 512;
constexpr std::int64_t kWidenedDepth = 1024;

/// Temporaries of the tiles that run at once. fp32 and fp64 go to BLAS, which packs into buffers
/// of its own. A bf16 product either goes to a library that may repack its operands (and keeps the
/// tile's rounded result when it accumulates), or is widened.
constexpr std::int64_t product_workspace(DType compute, std::int64_t m, std::int64_t n,
                                         std::int64_t k, int threads, bool accumulates) {
  if (compute != DType::kBf16) return 0;
  const ProductTiles tiles = product_tiles(m, n, k);
  const std::int64_t tm = tiles.by_rows ? tiles.size : m;
  const std::int64_t tn = tiles.by_rows ? n : tiles.size;
  const auto packed = [](std::int64_t a, std::int64_t b) {
    return temporary(2 * round_up(a, 64) * round_up(b, 64));
  };
  const std::int64_t library = packed(tm, k) + packed(k, tn) + packed(tm, tn) +
                               temporary(std::int64_t{256} << 10) +
                               (accumulates ? temporary(2 * tm * tn) : 0);
  const std::int64_t bm = std::min(tm, kWidenedRows), bn = std::min(tn, kWidenedRows);
  const std::int64_t bk = std::min(k, kWidenedDepth);
  const std::int64_t widened =
      temporary(4 * bm * bk) + temporary(4 * bk * bn) + temporary(4 * bm * bn) + temporary(2 * bn);
  return std::min<std::int64_t>(threads, tiles.count) * std::max(library, widened);
}

/// Query rows that attention handles at once: the block of scores is [64, s] per thread.
constexpr std::int64_t kAttentionRowBlock = 64;

}  // namespace bayplan
