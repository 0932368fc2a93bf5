// The optimizers and what each keeps per parameter. One entry here decides which moments are
// allocated, updated, saved and verified; the formulas are the contracts of kernels/optim.h.
// Not for: master weights, which follow from the precision alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace bayplan {

enum class OptimizerKind : std::uint8_t { kAdamW, kAdam, kSgd, kSgdMomentum };

struct OptimizerSpec {
  OptimizerKind kind;
  std::string_view name;  // in plan files and on the command line
  bool moment1;           // Adam's m; the momentum buffer of SGD
  bool moment2;           // Adam's v
};

/// In the order of the enumerators.
constexpr std::array<OptimizerSpec, 4> kOptimizers = {{
    {OptimizerKind::kAdamW, "adamw", true, true},
    {OptimizerKind::kAdam, "adam", true, true},
    {OptimizerKind::kSgd, "sgd", false, false},
    {OptimizerKind::kSgdMomentum, "sgd-momentum", true, false},
}};

constexpr const OptimizerSpec& optimizer_spec(OptimizerKind kind) {
  return kOptimizers[static_cast<std::size_t>(kind)];
}

constexpr std::optional<OptimizerKind> parse_optimizer(std::string_view name) {
  for (const OptimizerSpec& spec : kOptimizers) {
    if (spec.name == name) return spec.kind;
  }
  return std::nullopt;
}

}  // namespace bayplan
