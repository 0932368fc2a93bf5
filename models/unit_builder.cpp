#include "models/unit_builder.h"

#include <utility>

#include "planner/core/check.h"

namespace bayplan {

std::int32_t UnitBuilder::tensor(std::string name) {
  unit_.tensors.push_back({std::move(name)});
  return static_cast<std::int32_t>(unit_.tensors.size()) - 1;
}

std::int32_t UnitBuilder::boundary_input(std::string name) {
  const std::int32_t t = tensor(std::move(name));
  unit_.boundary_inputs.push_back(t);
  return t;
}

std::int32_t UnitBuilder::external_input(std::string name, ExternalInput kind) {
  const std::int32_t t = tensor(std::move(name));
  unit_.external_inputs.push_back(t);
  unit_.external_kinds.push_back(kind);
  return t;
}

std::int32_t UnitBuilder::add(OperatorKind kind, std::string name, std::string prefix,
                              std::string output, std::initializer_list<std::int32_t> inputs,
                              std::initializer_list<const char*> statistics,
                              OperatorAttributes attributes) {
  Operator op;
  op.kind = kind;
  op.name = std::move(name);
  op.inputs = inputs;
  op.attributes = attributes;
  const std::int32_t result = tensor(output);
  op.outputs = {result};
  for (const char* s : statistics) op.statistics.push_back(tensor(output + "." + s));
  for (ParameterSpec& spec : operator_spec(kind).parameters(op)) {
    op.parameters.push_back(static_cast<std::int32_t>(unit_.parameters.size()));
    UnitParameter parameter;
    parameter.name = prefix + spec.suffix;
    parameter.shape = spec.shape;
    parameter.weight_decay = spec.weight_decay;
    parameter.init = spec.init;
    parameter.init_std = spec.init_std;
    unit_.parameters.push_back(std::move(parameter));
  }
  unit_.operators.push_back(std::move(op));
  return result;
}

void UnitBuilder::tie(const std::string& name, const std::string& tied_to) {
  for (UnitParameter& p : unit_.parameters) {
    if (p.name == name) {
      p.tied_to = tied_to;
      return;
    }
  }
  BAYPLAN_CHECK(false, "no parameter " + name);
}

}  // namespace bayplan
