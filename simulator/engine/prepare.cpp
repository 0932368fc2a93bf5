#include "simulator/engine/prepare.h"

#include <map>

namespace bayplan::sim {
namespace {

ExecutionStyle style_of(const Cluster& cluster, int rank) {
  const DevicePlace place = place_of(cluster, rank);
  const NodeGroup& group = cluster.groups[static_cast<std::size_t>(place.group)];
  return group.device.device_class == DeviceClass::kCpu ? ExecutionStyle::kInline
                                                        : ExecutionStyle::kAsynchronous;
}

ClassCosts cost_calls(const ClassGraph& graph, int rank_class, ExecutionStyle style,
                      const CostModel& costs) {
  ClassCosts out;
  out.calls.resize(graph.calls.size());
  out.issued_at.resize(graph.calls.size(), 0);
  std::int64_t host = 0;
  for (std::size_t c = 0; c < graph.calls.size(); ++c) {
    const Call& call = graph.calls[c];
    Picoseconds issue = costs.communication_issue;
    if (call.endpoints.size() == 0) {
      const auto& i = graph.list->instructions[static_cast<std::size_t>(call.first)];
      out.calls[c] = costs.compute(rank_class, *graph.list, i);
      issue = out.calls[c].issue;
    }
    if (style == ExecutionStyle::kInline) continue;
    host += issue.value;
    out.issued_at[c] = host;
  }
  return out;
}

std::vector<CommunicationCost> cost_matches(const Prepared& prepared, const CostModel& costs) {
  const Program& program = *prepared.program;
  std::vector<CommunicationCost> out;
  out.reserve(prepared.matching.matches.size());
  std::vector<int> ranks;
  for (const Match& match : prepared.matching.matches) {
    ranks.clear();
    for (std::int32_t m = match.members.begin; m < match.members.end; ++m) {
      ranks.push_back(prepared.matching.members[static_cast<std::size_t>(m)].rank);
    }
    const MatchMember& first =
        prepared.matching.members[static_cast<std::size_t>(match.members.begin)];
    const auto rank_class =
        static_cast<std::size_t>(program.rank_class[static_cast<std::size_t>(first.rank)]);
    const ClassGraph& graph = prepared.graphs[rank_class];
    const Endpoint& endpoint = graph.endpoints[static_cast<std::size_t>(first.endpoint)];
    const Instruction& i = graph.list->instructions[static_cast<std::size_t>(endpoint.instruction)];
    const CollectivePayload payload = collective_payload(program, first.rank, *graph.list, i);
    const Buffer& buffer = program.classes[rank_class].buffers[payload.buffer.index()];
    out.push_back(costs.communication(
        {i.kind, i.purpose, buffer.role, payload.bytes.end - payload.bytes.begin, ranks}));
  }
  return out;
}

}  // namespace

Prepared prepare(const Program& program, ProgramKind kind, const Cluster& cluster,
                 const CostModel& costs) {
  Prepared out;
  out.program = &program;
  out.kind = kind;
  const std::size_t classes = program.classes.size();
  std::vector<int> example(classes, -1);  // a rank of each class
  for (int rank = program.world_size() - 1; rank >= 0; --rank) {
    example[static_cast<std::size_t>(program.rank_class[static_cast<std::size_t>(rank)])] = rank;
  }
  for (std::size_t c = 0; c < classes; ++c) {
    const int index = static_cast<int>(c);
    out.styles.push_back(example[c] < 0 ? ExecutionStyle::kAsynchronous
                                        : style_of(cluster, example[c]));
    out.graphs.push_back(build_class_graph(program, index, kind, out.styles[c]));
    out.costs.push_back(cost_calls(out.graphs[c], index, out.styles[c], costs));
  }
  out.matching = match_endpoints(program, out.graphs);
  out.match_costs = cost_matches(out, costs);

  std::map<int, std::int32_t> node_index;
  for (int rank = 0; rank < program.world_size(); ++rank) {
    const DevicePlace place = place_of(cluster, rank);
    const auto group = static_cast<std::size_t>(place.group);
    if (group >= costs.nodes.size() || costs.nodes[group].cores == 0) {
      out.node_of.push_back(-1);
      continue;
    }
    const auto next = static_cast<std::int32_t>(out.nodes.size());
    const auto [at, added] = node_index.emplace(place.node, next);
    if (added) out.nodes.push_back(costs.nodes[group]);
    out.node_of.push_back(at->second);
  }
  return out;
}

}  // namespace bayplan::sim
