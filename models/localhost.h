// This machine as a node group of CPU ranks. The only place that asks the operating system what
// hardware there is. Not for: measuring speeds (`bayplan calibrate`).
#pragma once

#include <string>

#include "planner/core/cluster.h"
#include "planner/core/result.h"
#include "planner/core/units.h"
#include "planner/formats/cluster_json.h"

namespace bayplan {

struct Machine {
  int cores = 1;    // that this process may use: affinity mask and container quota
  Bytes memory;     // physical, or the container's limit
  Bytes free_disk;  // of the folder for temporary files, whole GiB
};

Result<Machine> describe_machine();

/// `nodes` emulated nodes of `ranks` CPU ranks each: three quarters of the memory are shared out to
/// the ranks, one quarter is host memory. Rates are those of `preset`, a socket, scaled by the
/// cores of a rank; they are defaults until a calibration replaces them.
NodeGroup localhost_group(const Machine& machine, const HardwarePreset& preset, int nodes,
                          int ranks);

}  // namespace bayplan
