#include "planner/cost/operator_shapes.h"

namespace bayplan {

std::vector<OperatorView> operators_of(const Program& program, std::size_t unit_class) {
  const std::vector<TensorShape>& shapes = program.layouts[unit_class].shapes;
  const auto pick = [&](const std::vector<std::int32_t>& tensors) {
    std::vector<TensorShape> out;
    for (const std::int32_t t : tensors) out.push_back(shapes[static_cast<std::size_t>(t)]);
    return out;
  };
  std::vector<OperatorView> views;
  for (const Operator& op : program.graph.classes[unit_class].operators) {
    views.push_back({&op, pick(op.inputs), pick(op.outputs), pick(op.statistics)});
  }
  return views;
}

}  // namespace bayplan
