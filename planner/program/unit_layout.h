// Where every tensor of a unit class lives: the one table that planner, simulator and executor
// agree on, byte for byte. A unit's tensors fall into regions by lifetime; a region of one unit
// and micro-batch is one buffer of the Program, and tensors sit at fixed offsets inside it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/core/model_graph.h"
#include "planner/core/plan.h"
#include "planner/core/training_job.h"

namespace bayplan {

/// Alignment of every tensor inside a region and of every buffer in an arena, in bytes.
constexpr std::int64_t kTensorAlignment = 256;

enum class Region : std::uint8_t {
  kNone,
  kExternal,        // token ids and labels of the micro-batch; index = position in external_inputs
  kBoundaryInput,   // index = position in boundary_inputs
  kBoundaryOutput,  // index = position in boundary_outputs
  kSavedForInput,   // written by forward, last read by backward_input
  kSavedForWeight,  // written by forward, last read by backward_weight
  kScratch,         // dead at the end of the instruction
  kLoss,            // the rank's summed loss
  kBoundaryOutputGradient,
  kBoundaryInputGradient,
  kGradientStash,        // output gradients that a split backward keeps for backward_weight
  kRecomputedForInput,   // like kSavedForInput, but released behind forward and written again by
  kRecomputedForWeight,  // recompute, right before backward
};

struct Placement {
  Region region = Region::kNone;
  std::int32_t index = 0;
  std::int64_t offset = 0;  // bytes from the region's start
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// What backward_input does with the gradient of one input of one operator.
struct GradientSlot {
  enum class Action : std::uint8_t {
    kNone,     // the input takes no gradient
    kAlias,    // the output's gradient is the input's: nothing to do
    kWrite,    // target = contribution
    kAdd,      // target = residual + contribution (target may be residual)
    kCopyAdd,  // identity operators only: target = residual + output gradient, or a plain copy
  } action = Action::kNone;
  Placement target;
  Placement residual;  // kNone for a plain copy under kCopyAdd
};

/// Gradient plan of one operator: one slot per input, plus where its output gradients are.
struct OperatorGradients {
  std::vector<GradientSlot> inputs;
  std::vector<Placement> outputs;  // where the gradient of output i is read, per output
};

/// Placements under one backward style. Scratch of backward_input and of a fused backward is
/// planned by operator lifetimes.
struct BackwardLayout {
  std::vector<OperatorGradients> operators;  // aligned with UnitClass::operators
  std::int64_t stash_bytes = 0;              // 0 when fused
  std::int64_t scratch_bytes = 0;            // backward or backward_input
};

struct UnitLayout {
  std::int32_t unit_class = 0;
  std::vector<TensorShape> shapes;                  // per tensor
  std::vector<Placement> values;                    // per tensor
  std::vector<std::int64_t> boundary_input_bytes;   // unpadded
  std::vector<std::int64_t> boundary_output_bytes;  // unpadded
  std::vector<std::int64_t> external_bytes;
  /// Whether a backward phase reads boundary input / external i.
  std::vector<bool> boundary_input_for_input, boundary_input_for_weight;
  std::vector<bool> boundary_output_for_backward;
  std::vector<bool> external_for_backward;
  /// Whether a backward phase reads the value of parameter i of the class.
  std::vector<bool> parameter_for_input, parameter_for_weight;
  std::vector<bool> parameter_for_recompute;
  std::int64_t saved_for_input_bytes = 0;
  std::int64_t saved_for_weight_bytes = 0;
  std::int64_t recomputed_for_input_bytes = 0;
  std::int64_t recomputed_for_weight_bytes = 0;
  std::vector<bool> reruns;  // per operator: runs again in recompute
  std::int64_t forward_scratch_bytes = 0;
  bool has_backward_input = false;  // some boundary input takes a gradient or feeds parameters
  BackwardLayout fused;
  BackwardLayout split;
  /// Upper bounds of what operators allocate beyond the tensors above, per phase; the maximum
  /// over the unit's operators. [forward, backward_input, backward_weight]
  std::array<std::int64_t, 3> workspace_bytes{};
};

/// Parts of a unit's compute.
struct ComputeParts {
  bool forward = false, recompute = false, input = false, weight = false;
};

/// Whether a compute of the given parts reads the value of parameter `index`.
constexpr bool reads_parameter(const UnitLayout& layout, std::size_t index, ComputeParts parts) {
  return parts.forward || (parts.recompute && layout.parameter_for_recompute[index]) ||
         (parts.input && layout.parameter_for_input[index]) ||
         (parts.weight && layout.parameter_for_weight[index]);
}

constexpr bool recomputes(const UnitLayout& layout) {
  return layout.recomputed_for_input_bytes + layout.recomputed_for_weight_bytes > 0;
}

/// Lays out one unit class for one micro-batch. shapes: from infer_class_shapes.
UnitLayout lay_out_unit(const UnitClass& unit, const std::vector<TensorShape>& shapes,
                        const Precision& precision, int threads,
                        Recompute recompute = Recompute::kNone);

}  // namespace bayplan
