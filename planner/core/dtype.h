// Element types, and the training recipes ("precision") built from them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace bayplan {

enum class DType : std::uint8_t { kFp64, kFp32, kBf16, kFp16, kInt32, kInt64, kUint8 };

constexpr std::int64_t dtype_size(DType t) {
  switch (t) {
    case DType::kFp64:
    case DType::kInt64:
      return 8;
    case DType::kFp32:
    case DType::kInt32:
      return 4;
    case DType::kBf16:
    case DType::kFp16:
      return 2;
    case DType::kUint8:
      return 1;
  }
  return 0;
}

constexpr std::array<std::string_view, 7> kDTypeNames = {"fp64",  "fp32",  "bf16", "fp16",
                                                         "int32", "int64", "uint8"};
constexpr std::string_view dtype_name(DType t) { return kDTypeNames[static_cast<std::size_t>(t)]; }

constexpr std::optional<DType> parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kDTypeNames.size(); ++i) {
    if (kDTypeNames[i] == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

/// The dtypes of one training recipe.
///   compute: weights and activations · gradient: accumulators · state: master and moments
///   reduction: sums, statistics and losses. `has_master` is true when state != compute dtype.
struct Precision {
  DType compute = DType::kFp32;
  DType gradient = DType::kFp32;
  DType state = DType::kFp32;
  DType reduction = DType::kFp32;
  bool has_master = false;
  friend bool operator==(const Precision&, const Precision&) = default;
};

constexpr Precision precision_of(DType compute, std::optional<DType> gradient = std::nullopt) {
  const DType wide = compute == DType::kFp64 ? DType::kFp64 : DType::kFp32;
  return Precision{compute, gradient.value_or(wide), wide, wide, compute != wide};
}

}  // namespace bayplan
