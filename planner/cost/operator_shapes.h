// The operators of a unit class together with the shapes that each sees: the arguments that the
// operator table's functions take. Not for: where the tensors live (program/unit_layout.h).
#pragma once

#include <vector>

#include "planner/core/model_graph.h"
#include "planner/core/operator.h"

namespace bayplan {

struct OperatorView {
  const Operator* op = nullptr;
  std::vector<TensorShape> inputs;
  std::vector<TensorShape> outputs;
  std::vector<TensorShape> statistics;
  OperatorShapes shapes() const { return {inputs, outputs, statistics}; }
};

/// In topological order; points into `unit`. shapes: per tensor of the class.
std::vector<OperatorView> operators_of(const UnitClass& unit,
                                       const std::vector<TensorShape>& shapes);

}  // namespace bayplan
