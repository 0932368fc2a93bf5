// ModelGraph: what is trained. Operators grouped into units (embedding | block | head), the
// granularity of stage cuts, gathering, recompute and offload. Identical units share one
// UnitClass ("layer class"), so a 96-layer model holds three. Plain vectors;
// planner/partition/graph_view.h shows it to Boost.Graph.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/core/architecture.h"
#include "planner/core/ids.h"
#include "planner/core/operator.h"

namespace bayplan {

enum class UnitKind : std::uint8_t { kEmbedding, kBlock, kHead };

/// A tensor local to a unit class. Inputs 0..n-1 of the class come first.
struct UnitTensor {
  std::string name;
  friend bool operator==(const UnitTensor&, const UnitTensor&) = default;
};

/// One trainable tensor of a unit class. `tied_to` names the model-wide tied weight it shares
/// ("" = own).
struct UnitParameter {
  std::string name;  // local, e.g. "attention.qkv.weight"
  Shape shape;
  bool weight_decay = true;
  ParameterSpec::Init init = ParameterSpec::Init::kNormal;
  double init_std = 0.02;
  bool trainable = true;
  std::string tied_to;
  friend bool operator==(const UnitParameter&, const UnitParameter&) = default;
};

/// What the outside feeds to a unit besides other units' outputs.
enum class ExternalInput : std::uint8_t { kTokens, kLabels };

struct UnitClass {
  UnitKind kind = UnitKind::kBlock;
  std::vector<UnitTensor> tensors;
  std::vector<Operator> operators;  // topological order
  std::vector<UnitParameter> parameters;
  std::vector<std::int32_t> boundary_inputs;   // tensors that come from other units
  std::vector<std::int32_t> boundary_outputs;  // tensors that other units read
  std::vector<std::int32_t> external_inputs;   // tensors that the data reader fills
  std::vector<ExternalInput> external_kinds;
  std::int32_t loss = -1;  // tensor with the summed loss (head), or -1
  friend bool operator==(const UnitClass&, const UnitClass&) = default;
};

/// Where a unit's boundary input comes from: output `output` of unit `unit`, which need not be
/// the previous one.
struct BoundarySource {
  UnitId unit;
  std::int32_t output = 0;
  friend bool operator==(const BoundarySource&, const BoundarySource&) = default;
};

struct Unit {
  std::int32_t unit_class = 0;
  std::string name;                     // prefix of its parameters, e.g. "blocks.3"
  std::vector<BoundarySource> sources;  // one per boundary input of the class
};

struct ModelGraph {
  Architecture architecture;
  std::vector<UnitClass> classes;
  std::vector<Unit> units;  // topological order
  /// Dims of the boundary tensors are inferred; this is the only width the cost model may want.
  const UnitClass& class_of(UnitId u) const {
    return classes[static_cast<std::size_t>(units[u.index()].unit_class)];
  }
};

/// Trainable and frozen elements, tied tensors once.
std::int64_t parameter_count(const ModelGraph& graph);

/// Shapes of every tensor of a class for one micro-batch; boundary inputs must be given.
std::vector<TensorShape> infer_shapes(const UnitClass& unit,
                                      const std::vector<TensorShape>& boundary_inputs,
                                      BatchShape batch);

/// Shapes of every unit class of the graph (a class's boundary shapes are those of its first
/// unit; builders keep them equal within a class).
std::vector<std::vector<TensorShape>> infer_class_shapes(const ModelGraph& graph, BatchShape batch);

}  // namespace bayplan
