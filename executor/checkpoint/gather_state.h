// Assembles every logical tensor of the training state on rank 0, whatever the layout: compute
// weights, master weights, moments and the step counter. Which bytes a rank contributes is what
// the save program says. Not for: file formats (safetensors.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "executor/comm/communicator.h"
#include "planner/program/program.h"

namespace bayplan::exec {

/// A whole tensor: row-major, unpadded, little-endian.
struct LogicalTensor {
  std::string name;  // "weights/blocks.3.attention.qkv.weight", "master/…", "moment1/…",
                     // "moment2/…", "step"
  DType dtype = DType::kFp32;
  Shape shape;
  std::span<const std::byte> bytes;
};

/// Name, type and shape of every tensor that gather_state will show, ascending by name. Tied
/// weights are one tensor; `bytes` is empty.
std::vector<LogicalTensor> state_tensors(const Program& program);

using StateVisitor = std::function<void(const LogicalTensor&)>;

/// Collective: every rank calls it with its own arenas, outside of any program. On rank 0 `visit`
/// sees every tensor in name order; `bytes` is valid during the call. `step`: optimizer steps done.
void gather_state(const Program& program, const std::array<std::byte*, kTierCount>& arenas,
                  Communicator& communicator, std::int64_t step, const StateVisitor& visit);

}  // namespace bayplan::exec
