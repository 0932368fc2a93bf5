// Parameters and optimizer state of one parameter group: initial values, the sum of squares for
// clipping, and the optimizer update. For device_torch.cpp only.
#pragma once

#include "executor/device.h"

namespace bayplan::exec {

/// kInitialize: draws the parameters (and the own slice of the master weights), zeroes moments.
/// A value depends on the seed, its tensor and its place in the tensor only.
void initialize_group(const ComputeCall& call, int threads);

/// kGradientNorm: writes the sums of squares of the accessed gradient slices, and zero to the
/// other accessed scalars.
void sum_gradient_squares(const ComputeCall& call, int threads);

/// kAccumulate.
void accumulate_gradient(const ComputeCall& call, int threads);
/// kOptimizerStep: false when the gradient is not finite, and nothing was changed.
bool update_group(const ComputeCall& call, int threads);

}  // namespace bayplan::exec
