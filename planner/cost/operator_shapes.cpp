#include "planner/cost/operator_shapes.h"

namespace bayplan {

std::vector<OperatorView> operators_of(const UnitClass& unit,
                                       const std::vector<TensorShape>& shapes) {
  const auto pick = [&](const std::vector<std::int32_t>& tensors) {
    std::vector<TensorShape> out;
    for (const std::int32_t t : tensors) out.push_back(shapes[static_cast<std::size_t>(t)]);
    return out;
  };
  std::vector<OperatorView> views;
  for (const Operator& op : unit.operators) {
    views.push_back({&op, pick(op.inputs), pick(op.outputs), pick(op.statistics)});
  }
  return views;
}

}  // namespace bayplan
