// The operators of a program's unit class together with the shapes that each sees: the arguments
// that the operator table's functions take.
#pragma once

#include <vector>

#include "planner/core/operator.h"
#include "planner/program/program.h"

namespace bayplan {

struct OperatorView {
  const Operator* op = nullptr;
  std::vector<TensorShape> inputs;
  std::vector<TensorShape> outputs;
  std::vector<TensorShape> statistics;
  OperatorShapes shapes() const { return {inputs, outputs, statistics}; }
};

/// In topological order; points into `program`.
std::vector<OperatorView> operators_of(const Program& program, std::size_t unit_class);

}  // namespace bayplan
