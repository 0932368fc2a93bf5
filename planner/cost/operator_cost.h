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
/// rates: grid.busy or grid.alone.
double interpolate(const RateGrid& grid, const std::vector<double>& rates,
                   const OperatorSize& size);

/// Time of a piece of work on a core among busy ones, and on an otherwise idle machine.
struct CoreTime {
  Seconds busy;
  Seconds alone;
};

/// On one thread; nullopt when the calibration lacks the kind, phase or dtype.
std::optional<CoreTime> calibrated_time(const Calibration& calibration, const OperatorView& view,
                                        Phase phase, const Precision& precision);

/// Seconds on `device`; 0 when the phase does nothing.
Seconds roofline_time(const DeviceSpec& device, const OperatorView& view, Phase phase,
                      const Precision& precision);

}  // namespace bayplan
