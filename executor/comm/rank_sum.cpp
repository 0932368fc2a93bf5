#include "executor/comm/rank_sum.h"

#include <string>
#include <vector>

#include "kernels/ranked_sum.h"
#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

template <class T>
void sum(std::byte* out, std::span<const std::byte* const> inputs, std::int64_t elements) {
  std::vector<const T*> typed;
  typed.reserve(inputs.size());
  for (const std::byte* input : inputs) typed.push_back(reinterpret_cast<const T*>(input));
  kernels::sum_in_rank_order<T>(reinterpret_cast<T*>(out), typed.data(),
                                static_cast<int>(typed.size()), {0, elements});
}

}  // namespace

void sum_in_rank_order(std::byte* out, std::span<const std::byte* const> inputs,
                       std::int64_t elements, DType dtype) {
  switch (dtype) {
    case DType::kFp32:
      return sum<float>(out, inputs, elements);
    case DType::kBf16:
      return sum<kernels::bf16>(out, inputs, elements);
    case DType::kFp64:
      return sum<double>(out, inputs, elements);
    case DType::kFp16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
      break;
  }
  BAYPLAN_CHECK(false, "no sum of " + std::string(dtype_name(dtype)) + " over ranks");
}

}  // namespace bayplan::exec
