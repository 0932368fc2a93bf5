// One unit's forward or backward: resolves every placement of the unit layout to an address in
// the arenas and calls the operators on them. For device_torch.cpp only.
#pragma once

#include "executor/device.h"
#include "executor/ops/op_kernels.h"

namespace bayplan::exec {

/// Executes call.instruction (forward, recompute, backward, backward_input or backward_weight).
/// `scratch` argument storage is reused from call to call.
void run_unit(const ComputeCall& call, int threads, OpCall& scratch);

}  // namespace bayplan::exec
