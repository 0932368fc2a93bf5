// Operators: the atom that planner, simulator and executor share. One OperatorSpec per kind
// declares shapes, parameters, what each backward phase needs, work and workspace; nobody keeps
// a second copy of these facts. Not for: how an operator is computed (executor/ops).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/core/dtype.h"
#include "planner/core/shape.h"
#include "planner/core/units.h"

namespace bayplan {

enum class OperatorKind : std::uint8_t {
  kEmbedding,    // ids [b,s] -> x [b,s,h]; weight [V,h], learned positions [P,h] optional
  kLinear,       // x [b,s,i] -> y [b,s,o]; weight [o,i], bias [o] optional
  kLayerNorm,    // x -> y; weight, bias [h]; statistics mean, rstd [b,s]
  kRmsNorm,      // x -> y; weight [h]; statistic rstd [b,s]
  kRope,         // packed qkv [b,s,(a+2k)d] -> same shape; rotates q and k, copies v
  kAttention,    // packed qkv [b,s,(a+2k)d] -> o [b,s,a d]; causal; statistic lse [b,a,s]
  kGelu,         // tanh form
  kSwiglu,       // [b,s,2f] (gate first) -> [b,s,f]: silu(gate) * up
  kResidualAdd,  // skip, branch -> skip + branch
  kDropout,      // Philox mask, regenerated in backward
  kLmHeadLoss,   // x [b,s,h], labels [b,s] -> loss [1] (sum); weight [V,h]; statistics logits
                 // [b,s,V up to a multiple of 16], which forward turns into their gradient, lse
};
constexpr int kOperatorKindCount = 11;

enum class Phase : std::uint8_t { kForward, kBackwardInput, kBackwardWeight };

/// Numbers an operator kind may read; each kind documents which (see the enumerators above).
struct OperatorAttributes {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;  // linear: o · norms: h · lm_head: V · embedding: h
  bool bias = false;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab = 0;
  std::int64_t positions = 0;  // rows of the learned position table; 0 = none
  double epsilon = 0.0;
  double theta = 0.0;
  double init_std = 0.02;
  friend bool operator==(const OperatorAttributes&, const OperatorAttributes&) = default;
};

/// One node of a unit. Index lists are positions in the unit class's tensors and parameters.
struct Operator {
  OperatorKind kind{};
  std::string name;
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> outputs;
  std::vector<std::int32_t> statistics;  // written by forward for backward only
  std::vector<std::int32_t> parameters;
  OperatorAttributes attributes;
  friend bool operator==(const Operator&, const Operator&) = default;
};

/// Which element type a tensor has, before a precision is chosen.
enum class ElementClass : std::uint8_t { kCompute, kReduction, kIndex, kLoss };

constexpr DType element_dtype(ElementClass e, const Precision& p) {
  switch (e) {
    case ElementClass::kCompute:
      return p.compute;
    case ElementClass::kReduction:
      return p.reduction;
    case ElementClass::kIndex:
      return DType::kInt32;
    case ElementClass::kLoss:
      return DType::kFp64;
  }
  return DType::kFp32;
}

struct TensorShape {
  Shape shape;
  ElementClass element = ElementClass::kCompute;
};

/// Sizes that shape inference needs besides the operator: b samples of s tokens.
struct BatchShape {
  std::int64_t micro_batch = 1;
  std::int64_t seq = 1;
};

struct ParameterSpec {
  std::string suffix;  // "weight", "bias", "positions"
  Shape shape;
  bool weight_decay = true;  // none on norms and biases
  enum class Init : std::uint8_t { kNormal, kZero, kOne } init = Init::kNormal;
  double init_std = 0.02;
};

/// Bit i set = the phase reads entry i of that list.
struct Needs {
  std::uint8_t inputs = 0;
  std::uint8_t outputs = 0;
  std::uint8_t statistics = 0;
  std::uint8_t parameters = 0;
  bool output_gradient = false;
};

/// Work of one call: multiply-adds count 2; bytes are the compulsory reads and writes.
struct OperatorWork {
  FlopCount flops;
  Bytes bytes;
};

/// The shapes one operator sees, in the order of its index lists.
struct OperatorShapes {
  std::span<const TensorShape> inputs;
  std::span<const TensorShape> outputs;
  std::span<const TensorShape> statistics;
};

struct OperatorSpec {
  OperatorKind kind{};
  std::string_view name;
  Needs backward_input;
  Needs backward_weight;
  /// Inputs that receive a gradient (token ids and labels do not).
  std::uint8_t differentiable_inputs = 0;
  /// The gradient of every input equals the gradient of the output (residual_add).
  bool gradient_is_identity = false;
  /// backward_input can add to a residual gradient while it writes, also in place (norms).
  bool adds_residual_gradient = false;
  /// backward_input overwrites its statistics, and backward_weight reads them after (logits).
  bool backward_updates_statistics = false;
  void (*infer)(const Operator&, std::span<const TensorShape> inputs, BatchShape,
                std::vector<TensorShape>& outputs, std::vector<TensorShape>& statistics) = nullptr;
  std::vector<ParameterSpec> (*parameters)(const Operator&) = nullptr;
  OperatorWork (*work)(const Operator&, const OperatorShapes&, Phase, const Precision&) = nullptr;
  /// Bytes of temporaries that the operator's CPU implementation may allocate in one call: an
  /// upper bound that the run enforces.
  Bytes (*workspace)(const Operator&, const OperatorShapes&, Phase, const Precision&,
                     int threads) = nullptr;
};

/// The table entry of `kind`. Total: every enumerator has one.
const OperatorSpec& operator_spec(OperatorKind kind);

}  // namespace bayplan
