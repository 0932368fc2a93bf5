// Time of one phase of one operator on one device. Two sources: a calibration of this machine,
// interpolated over its grids, or the roofline of a DeviceSpec.
//   roofline: max(FLOP / (peak · efficiency), bytes / (bandwidth · efficiency), launch floor)
//   (Williams, Waterman, Patterson 2009), FLOP and bytes from the operator table.
// Not for: several operators, waiting, contention (instruction_cost, simulator).
#pragma once

#include <optional>

#include "planner/core/cluster.h"
#include "planner/core/operator.h"
#include "planner/cost/calibration.h"
#include "planner/cost/operator_shapes.h"

namespace bayplan {

/// Sizes that index a RateGrid.
OperatorSize operator_size(const Operator& op, const OperatorShapes& shapes);

/// Whether rates of the kind count FLOP (else bytes).
bool counts_flops(OperatorKind kind);

/// Work in the unit of the kind's rates.
double operator_work(const OperatorView& view, Phase phase, const Precision& precision);

/// Rate at `size`: multilinear in the logarithms of sizes and rate, constant beyond the grid.
double interpolate(const RateGrid& grid, const OperatorSize& size);

/// Seconds on one thread with every core busy; nullopt when the calibration lacks the kind, phase
/// or dtype.
std::optional<Seconds> calibrated_time(const Calibration& calibration, const OperatorView& view,
                                       Phase phase, const Precision& precision);

/// Seconds on `device`; 0 when the phase does nothing.
Seconds roofline_time(const DeviceSpec& device, const OperatorView& view, Phase phase,
                      const Precision& precision);

}  // namespace bayplan
