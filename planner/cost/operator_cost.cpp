#include "planner/cost/operator_cost.h"

#include <algorithm>
#include <cmath>

namespace bayplan {
namespace {

/// Position of `size` on an ascending axis: the lower grid point and the share of the upper one,
/// in logarithms.
struct AxisPosition {
  std::size_t lower = 0;
  double share = 0.0;
};

AxisPosition locate(const std::vector<std::int64_t>& axis, std::int64_t size) {
  if (axis.size() == 1 || size <= axis.front()) return {0, 0.0};
  if (size >= axis.back()) return {axis.size() - 2, 1.0};
  const auto upper = std::upper_bound(axis.begin(), axis.end(), size);
  const auto lower = static_cast<std::size_t>(upper - axis.begin()) - 1;
  const double a = std::log(static_cast<double>(axis[lower]));
  const double b = std::log(static_cast<double>(axis[lower + 1]));
  return {lower, (std::log(static_cast<double>(size)) - a) / (b - a)};
}

double best_rate(const DeviceSpec& device, DType dtype) {
  const auto exact = device.peak.find(dtype);
  if (exact != device.peak.end()) return exact->second.value;
  const auto wide = device.peak.find(DType::kFp32);
  return wide != device.peak.end() ? wide->second.value : 0.0;
}

const RateGrid* find_grid(const Calibration& calibration, OperatorKind kind, Phase phase,
                          DType dtype) {
  for (const RateGrid& grid : calibration.operators) {
    if (grid.kind == kind && grid.phase == phase && grid.dtype == dtype) return &grid;
  }
  return nullptr;
}

bool is_matrix_product(OperatorKind kind) {
  return kind == OperatorKind::kLinear || kind == OperatorKind::kLmHeadLoss;
}

}  // namespace

OperatorSize operator_size(const Operator& op, const OperatorShapes& shapes) {
  const Shape& out = shapes.outputs[0].shape;
  if (op.kind == OperatorKind::kLinear) {
    return {out.rows(), op.attributes.in_features, op.attributes.out_features};
  }
  if (op.kind == OperatorKind::kLmHeadLoss) {
    return {shapes.inputs[0].shape.rows(), op.attributes.in_features, op.attributes.vocab};
  }
  if (op.kind == OperatorKind::kAttention) {
    return {out[0] * op.attributes.heads, out[1], op.attributes.head_dim};
  }
  if (op.kind == OperatorKind::kRope) return {out.rows(), out.width(), out[1]};
  return {out.rows(), out.width(), 1};
}

bool counts_flops(OperatorKind kind) {
  return is_matrix_product(kind) || kind == OperatorKind::kAttention;
}

double operator_work(const OperatorView& view, Phase phase, const Precision& precision) {
  const OperatorWork work =
      operator_spec(view.op->kind).work(*view.op, view.shapes(), phase, precision);
  return counts_flops(view.op->kind) ? work.flops.value : static_cast<double>(work.bytes.value);
}

double interpolate(const RateGrid& grid, const std::vector<double>& rates,
                   const OperatorSize& size) {
  std::array<AxisPosition, 3> at;
  for (std::size_t d = 0; d < at.size(); ++d) at[d] = locate(grid.axes[d], size[d]);
  double log_rate = 0.0;
  for (unsigned corner = 0; corner < 8; ++corner) {
    double weight = 1.0;
    std::size_t index = 0;
    for (std::size_t d = 0; d < at.size(); ++d) {
      const bool upper = (corner >> d & 1u) != 0;
      weight *= upper ? at[d].share : 1.0 - at[d].share;
      index = index * grid.axes[d].size() +
              std::min(at[d].lower + (upper ? 1 : 0), grid.axes[d].size() - 1);
    }
    if (weight > 0.0) log_rate += weight * std::log(rates[index]);
  }
  return std::exp(log_rate);
}

std::optional<CoreTime> calibrated_time(const Calibration& calibration, const OperatorView& view,
                                        Phase phase, const Precision& precision) {
  const double work = operator_work(view, phase, precision);
  if (work == 0.0) return CoreTime{};
  const bool wide = precision.compute == DType::kFp64;
  const RateGrid* grid = find_grid(calibration, view.op->kind, phase, precision.compute);
  // fp64 is for comparing layouts, and rarely measured: half the FLOP rate of fp32, and the same
  // rate in bytes, of which its work has twice as many.
  double slower = 1.0;
  if (grid == nullptr && wide) {
    grid = find_grid(calibration, view.op->kind, phase, DType::kFp32);
    slower = counts_flops(view.op->kind) ? 2.0 : 1.0;
  }
  if (grid == nullptr) return std::nullopt;
  const OperatorSize size = operator_size(*view.op, view.shapes());
  return CoreTime{Seconds(slower * work / interpolate(*grid, grid->busy, size)),
                  Seconds(slower * work / interpolate(*grid, grid->alone, size))};
}

Seconds roofline_time(const DeviceSpec& device, const OperatorView& view, Phase phase,
                      const Precision& precision) {
  const OperatorWork work =
      operator_spec(view.op->kind).work(*view.op, view.shapes(), phase, precision);
  if (work.flops.value == 0.0 && work.bytes.value == 0) return Seconds(0.0);
  const OperatorKind kind = view.op->kind;
  // Element-wise arithmetic runs beside the matrix units, and never limits on the devices here.
  double compute = 0.0;
  if (const double peak = best_rate(device, precision.compute); counts_flops(kind) && peak > 0.0) {
    const double efficiency =
        kind == OperatorKind::kAttention ? device.attention_efficiency : device.gemm_efficiency;
    compute = work.flops.value / (peak * efficiency);
  }
  const double memory = static_cast<double>(work.bytes.value) /
                        (device.memory_bandwidth.value * device.memory_efficiency);
  return Seconds(std::max({compute, memory, device.launch.value}));
}

}  // namespace bayplan
