#include "planner/partition/graph_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dominator_tree.hpp>
#include <functional>
#include <queue>

#include "planner/core/check.h"

namespace bayplan {
namespace {

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;
using Vertex = boost::graph_traits<Graph>::vertex_descriptor;

/// Vertex i is operator i counted over the units in order; the last vertex is the entry, with an
/// edge to every operator that reads no other operator.
struct View {
  Graph graph;
  std::vector<OperatorNode> nodes;
  std::vector<std::size_t> first_of_unit;
  Vertex entry = 0;

  Vertex vertex(UnitId unit, std::size_t position) const {
    return first_of_unit[unit.index()] + position;
  }
};

/// Position of the operator of `unit` that writes `tensor`, or -1 when it is an input.
std::ptrdiff_t producer(const UnitClass& unit, std::int32_t tensor) {
  for (std::size_t o = 0; o < unit.operators.size(); ++o) {
    const auto& outputs = unit.operators[o].outputs;
    if (std::find(outputs.begin(), outputs.end(), tensor) != outputs.end())
      return static_cast<std::ptrdiff_t>(o);
  }
  return -1;
}

View make_view(const ModelGraph& graph) {
  View view;
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    view.first_of_unit.push_back(view.nodes.size());
    const UnitClass& unit = graph.class_of(UnitId(u));
    for (std::size_t o = 0; o < unit.operators.size(); ++o) {
      view.nodes.push_back({UnitId(u), static_cast<std::int32_t>(o)});
    }
  }
  view.graph = Graph(view.nodes.size() + 1);
  view.entry = view.nodes.size();
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    const UnitClass& unit = graph.class_of(UnitId(u));
    for (std::size_t o = 0; o < unit.operators.size(); ++o) {
      const Vertex to = view.vertex(UnitId(u), o);
      for (const std::int32_t input : unit.operators[o].inputs) {
        if (const std::ptrdiff_t from = producer(unit, input); from >= 0) {
          boost::add_edge(view.vertex(UnitId(u), static_cast<std::size_t>(from)), to, view.graph);
          continue;
        }
        const auto boundary =
            std::find(unit.boundary_inputs.begin(), unit.boundary_inputs.end(), input);
        if (boundary == unit.boundary_inputs.end()) continue;  // fed from outside: no operator
        const BoundarySource& source =
            graph.units[u]
                .sources[static_cast<std::size_t>(boundary - unit.boundary_inputs.begin())];
        const UnitClass& other = graph.class_of(source.unit);
        const std::ptrdiff_t writer =
            producer(other, other.boundary_outputs[static_cast<std::size_t>(source.output)]);
        BAYPLAN_CHECK(writer >= 0, "a boundary output is written by an operator");
        boost::add_edge(view.vertex(source.unit, static_cast<std::size_t>(writer)), to, view.graph);
      }
    }
  }
  for (Vertex v = 0; v < view.nodes.size(); ++v) {
    if (boost::in_degree(v, view.graph) == 0) boost::add_edge(view.entry, v, view.graph);
  }
  return view;
}

/// Smallest free vertex first, so that the order is one that people would write. (The library's
/// topological_sort takes whatever order its depth-first search meets.)
Result<std::vector<Vertex>> order_of(const View& view, const ModelGraph& graph) {
  std::vector<std::size_t> waiting(view.nodes.size());
  std::priority_queue<Vertex, std::vector<Vertex>, std::greater<>> free;
  for (Vertex v = 0; v < view.nodes.size(); ++v) {
    for (auto [e, end] = boost::in_edges(v, view.graph); e != end; ++e) {
      if (boost::source(*e, view.graph) != view.entry) ++waiting[v];
    }
    if (waiting[v] == 0) free.push(v);
  }
  std::vector<Vertex> order;
  while (!free.empty()) {
    const Vertex v = free.top();
    free.pop();
    order.push_back(v);
    for (auto [e, end] = boost::out_edges(v, view.graph); e != end; ++e) {
      const Vertex next = boost::target(*e, view.graph);
      if (--waiting[next] == 0) free.push(next);
    }
  }
  if (order.size() == view.nodes.size()) return order;
  const auto stuck =
      std::find_if(waiting.begin(), waiting.end(), [](std::size_t n) { return n > 0; });
  const OperatorNode& node = view.nodes[static_cast<std::size_t>(stuck - waiting.begin())];
  return Error{
      "graph-cycle",
      fmt::format("operator '{}' of unit '{}' waits for itself",
                  graph.class_of(node.unit).operators[static_cast<std::size_t>(node.position)].name,
                  graph.units[node.unit.index()].name),
      "model", "a model graph must be acyclic"};
}

/// The operator that writes the loss.
Result<Vertex> loss_vertex(const View& view, const ModelGraph& graph) {
  for (std::size_t u = graph.units.size(); u-- > 0;) {
    const UnitClass& unit = graph.class_of(UnitId(u));
    if (unit.loss < 0) continue;
    const std::ptrdiff_t writer = producer(unit, unit.loss);
    BAYPLAN_CHECK(writer >= 0, "the loss is written by an operator");
    return view.vertex(UnitId(u), static_cast<std::size_t>(writer));
  }
  return Error{"no-loss", "no unit of the model has a loss", "model",
               "a head unit with a loss is needed"};
}

/// dominates[v]: every path from the entry to the loss runs through v.
Result<std::vector<bool>> dominators_of_loss(const View& view, const ModelGraph& graph) {
  BAYPLAN_TRY(loss, loss_vertex(view, graph));
  const Vertex none = boost::graph_traits<Graph>::null_vertex();
  std::vector<Vertex> immediate(boost::num_vertices(view.graph), none);
  boost::lengauer_tarjan_dominator_tree(
      view.graph, view.entry,
      boost::make_iterator_property_map(immediate.begin(),
                                        boost::get(boost::vertex_index, view.graph)));
  std::vector<bool> dominates(view.nodes.size(), false);
  for (Vertex v = immediate[loss]; v != none && v != view.entry; v = immediate[v])
    dominates[v] = true;
  return dominates;
}

}  // namespace

Result<std::vector<OperatorNode>> topological_order(const ModelGraph& graph) {
  const View view = make_view(graph);
  BAYPLAN_TRY(order, order_of(view, graph));
  std::vector<OperatorNode> nodes;
  for (const Vertex v : order) nodes.push_back(view.nodes[v]);
  return nodes;
}

Result<std::vector<OperatorNode>> single_tensor_cuts(const ModelGraph& graph) {
  const View view = make_view(graph);
  BAYPLAN_TRY(order, order_of(view, graph));
  BAYPLAN_TRY(dominates, dominators_of_loss(view, graph));
  std::vector<OperatorNode> cuts;
  for (const Vertex v : order) {
    if (dominates[v]) cuts.push_back(view.nodes[v]);
  }
  return cuts;
}

Result<std::vector<bool>> unit_cuts(const ModelGraph& graph) {
  const View view = make_view(graph);
  BAYPLAN_RETURN_IF_ERROR(order_of(view, graph));
  BAYPLAN_TRY(dominates, dominators_of_loss(view, graph));
  std::vector<bool> legal;
  for (std::size_t u = 0; u + 1 < graph.units.size(); ++u) {
    const UnitClass& unit = graph.class_of(UnitId(u));
    bool legal_here = unit.boundary_outputs.size() == 1;
    if (legal_here) {
      const std::ptrdiff_t writer = producer(unit, unit.boundary_outputs.front());
      legal_here = dominates[view.vertex(UnitId(u), static_cast<std::size_t>(writer))];
    }
    legal.push_back(legal_here);
  }
  return legal;
}

Status check_stage_boundaries(const ModelGraph& graph, const std::vector<StagePlan>& stages) {
  BAYPLAN_TRY(legal, unit_cuts(graph));
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
    const int last = stages[s].first_unit + stages[s].unit_count - 1;
    if (last < 0 || last >= static_cast<int>(legal.size()) || legal[static_cast<std::size_t>(last)])
      continue;
    return Error{"illegal-cut",
                 fmt::format("stage {} ends behind unit '{}', where more than one tensor crosses",
                             s, graph.units[static_cast<std::size_t>(last)].name),
                 fmt::format("plan/stages/{}", s), "end the stage at another unit"};
  }
  return {};
}

}  // namespace bayplan
