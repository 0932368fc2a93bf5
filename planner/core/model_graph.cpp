#include "planner/core/model_graph.h"

#include <set>

#include "planner/core/check.h"

namespace bayplan {
namespace {

std::vector<TensorShape> gather(const std::vector<TensorShape>& shapes,
                                const std::vector<std::int32_t>& tensors) {
  std::vector<TensorShape> out;
  out.reserve(tensors.size());
  for (std::int32_t t : tensors) out.push_back(shapes[static_cast<std::size_t>(t)]);
  return out;
}

void scatter(std::vector<TensorShape>& shapes, const std::vector<std::int32_t>& tensors,
             const std::vector<TensorShape>& values) {
  BAYPLAN_CHECK(tensors.size() == values.size(), "operator writes another number of tensors");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    shapes[static_cast<std::size_t>(tensors[i])] = values[i];
  }
}

}  // namespace

std::int64_t parameter_count(const ModelGraph& graph) {
  std::int64_t count = 0;
  std::set<std::string> tied;
  for (const Unit& unit : graph.units) {
    for (const UnitParameter& p :
         graph.classes[static_cast<std::size_t>(unit.unit_class)].parameters) {
      if (p.tied_to.empty() || tied.insert(p.tied_to).second) count += p.shape.count();
    }
  }
  return count;
}

std::vector<TensorShape> infer_shapes(const UnitClass& unit,
                                      const std::vector<TensorShape>& boundary_inputs,
                                      BatchShape batch) {
  std::vector<TensorShape> shapes(unit.tensors.size());
  scatter(shapes, unit.boundary_inputs, boundary_inputs);
  for (std::int32_t t : unit.external_inputs) {
    shapes[static_cast<std::size_t>(t)] = {{batch.micro_batch, batch.seq}, ElementClass::kIndex};
  }
  std::vector<TensorShape> outputs;
  std::vector<TensorShape> statistics;
  for (const Operator& op : unit.operators) {
    operator_spec(op.kind).infer(op, gather(shapes, op.inputs), batch, outputs, statistics);
    scatter(shapes, op.outputs, outputs);
    scatter(shapes, op.statistics, statistics);
  }
  return shapes;
}

std::vector<std::vector<TensorShape>> infer_class_shapes(const ModelGraph& graph,
                                                         BatchShape batch) {
  std::vector<std::vector<TensorShape>> shapes(graph.classes.size());
  for (const Unit& unit : graph.units) {
    std::vector<TensorShape>& own = shapes[static_cast<std::size_t>(unit.unit_class)];
    if (!own.empty()) continue;
    std::vector<TensorShape> inputs;
    for (const BoundarySource& source : unit.sources) {
      const Unit& producer = graph.units[source.unit.index()];
      const UnitClass& producer_class = graph.class_of(source.unit);
      const std::int32_t tensor =
          producer_class.boundary_outputs[static_cast<std::size_t>(source.output)];
      inputs.push_back(
          shapes[static_cast<std::size_t>(producer.unit_class)][static_cast<std::size_t>(tensor)]);
    }
    own = infer_shapes(graph.classes[static_cast<std::size_t>(unit.unit_class)], inputs, batch);
  }
  return shapes;
}

}  // namespace bayplan
