// How far the tensors of two safetensors files are apart. Reads both in pieces, so that files need
// not fit into memory. Not for: deciding what is close enough.
#pragma once

#include <string>
#include <vector>

#include "planner/formats/safetensors_header.h"

namespace bayplan {

/// Of one tensor that both files have.
struct TensorDifference {
  std::string name;
  DType dtype = DType::kFp32;
  std::vector<std::int64_t> shape;
  double max_abs = 0.0;  // largest |a - b|; infinity where only one side is NaN, or an infinity
  double max_rel = 0.0;  // largest |a - b| / max(|a|, |b|); infinity as above
};

struct StateDifference {
  std::vector<TensorDifference> tensors;  // ascending by name
  std::vector<std::string> only_in_a;
  std::vector<std::string> only_in_b;
};

/// Errors: those of read_safetensors_header, "different-tensor" when a name has another dtype or
/// shape in `b`, "unreadable-file".
Result<StateDifference> compare_safetensors(const std::string& a, const std::string& b);

/// Value of IEEE binary16 bits.
double half_value(std::uint16_t bits);

}  // namespace bayplan
