// Sums of the contributions of ranks, and the split of a buffer into the shards that ranks own.
// Every communicator sums through these, so a sum has the same bits whichever one ran.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "planner/core/dtype.h"

namespace bayplan::exec {

/// out = sum of inputs in order, each `elements` long, added in fp32 (fp64 for fp64) and rounded
/// once. out may be one of the inputs. dtype: fp32, bf16, fp64.
void sum_in_rank_order(std::byte* out, std::span<const std::byte* const> inputs,
                       std::int64_t elements, DType dtype);

struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
/// Elements that member `index` of `members` owns in an all_reduce of `elements`.
constexpr ElementRange owned_elements(std::int64_t elements, std::size_t index,
                                      std::size_t members) {
  const auto i = static_cast<std::int64_t>(index);
  const auto n = static_cast<std::int64_t>(members);
  return {elements * i / n, elements * (i + 1) / n};
}

}  // namespace bayplan::exec
