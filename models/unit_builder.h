// Appends operators to a UnitClass and keeps tensors, parameters and index lists consistent.
// For the build_*.cpp files only.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "planner/core/model_graph.h"

namespace bayplan {

class UnitBuilder {
 public:
  explicit UnitBuilder(UnitKind kind) { unit_.kind = kind; }

  /// Inputs come before any operator.
  std::int32_t boundary_input(std::string name);
  std::int32_t external_input(std::string name, ExternalInput kind);

  /// Adds an operator with one output called `output`; returns that tensor. Its parameters are
  /// named `prefix` + suffix, as the operator table declares them.
  std::int32_t add(OperatorKind kind, std::string name, std::string prefix, std::string output,
                   std::initializer_list<std::int32_t> inputs,
                   std::initializer_list<const char*> statistics, OperatorAttributes attributes);

  /// The unit's parameter `name` shares the model-wide weight `tied_to`.
  void tie(const std::string& name, const std::string& tied_to);

  void boundary_output(std::int32_t tensor) { unit_.boundary_outputs.push_back(tensor); }
  void loss(std::int32_t tensor) { unit_.loss = tensor; }
  UnitClass take() { return std::move(unit_); }

 private:
  std::int32_t tensor(std::string name);
  UnitClass unit_;
};

}  // namespace bayplan
