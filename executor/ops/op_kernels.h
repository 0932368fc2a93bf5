// How operators are computed on the CPU: one file per operator kind, each with these three
// functions over exactly the buffers that the unit layout declares. Hand-written over ATen and
// kernels/; torch autograd is only the tests' oracle.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/model_graph.h"
#include "planner/program/unit_layout.h"

namespace bayplan::exec {

struct OpTensor {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::kFp32;
};

/// Where the gradient of one input goes (unit_layout.h, GradientSlot).
struct OpInputGradient {
  GradientSlot::Action action = GradientSlot::Action::kNone;
  OpTensor target;
  const void* residual = nullptr;
};

/// Identifies random draws: Philox key (seed, step, operator), counter = element_base + i, where
/// element_base is the first element's position in the global batch.
struct OpRandom {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t op = 0;
  std::uint64_t element_base = 0;
  double dropout = 0.0;
};

/// Arguments of one operator call. Vectors follow the operator's index lists.
struct OpCall {
  const Operator* op = nullptr;
  Precision precision;
  int threads = 1;
  bool keep_for_backward = true;  // false in eval
  std::vector<OpTensor> inputs, outputs, statistics, parameters;
  std::vector<OpTensor> output_gradients;        // backward
  std::vector<OpInputGradient> input_gradients;  // backward_input
  std::vector<OpTensor> parameter_gradients;     // backward_weight; accumulated, gradient dtype
  OpRandom random;
};

struct OpKernel {
  void (*forward)(OpCall&) = nullptr;
  void (*backward_input)(OpCall&) = nullptr;   // nullptr: no differentiable input
  void (*backward_weight)(OpCall&) = nullptr;  // nullptr: no parameters
};

const OpKernel& op_kernel(OperatorKind kind);

}  // namespace bayplan::exec
