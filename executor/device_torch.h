// The CPU device: runs a Program's compute with the operators of executor/ops on arena memory.
// One object per rank; all calls after allocate_arena come from the thread that called attach.
// Not for: communication (comm/), order and buffers (the Program decides both).
#pragma once

#include <memory>

#include "executor/device.h"

namespace bayplan::exec {

/// `threads` ≥ 1 run each operator; results do not depend on it. Installs the allocator hook.
std::unique_ptr<Device> make_torch_cpu_device(int rank, int threads);

}  // namespace bayplan::exec
