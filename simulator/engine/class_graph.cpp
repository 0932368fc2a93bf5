#include "simulator/engine/class_graph.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "planner/program/dispatch.h"

namespace bayplan::sim {
namespace {

/// ProgramConsumer that turns a list into calls, endpoints and edges.
class GraphBuilder {
 public:
  GraphBuilder(const Program& program, ExecutionStyle style, ClassGraph& graph)
      : program_(program), style_(style), graph_(graph) {
    graph_.group_calls.assign(program.communication_groups.size(), 0);
    last_in_queue_.fill(-1);
  }

  void build(const InstructionList& list) {
    graph_.list = &list;
    const std::size_t n = list.instructions.size();
    graph_.call_of.reserve(n);
    for (index_ = 0; index_ < static_cast<std::int32_t>(n); ++index_) {
      dispatch(*this, list, list.instructions[static_cast<std::size_t>(index_)]);
    }
    connect(list);
  }

  void on_initialize(const InstructionList&, const Instruction& i) { add_call(i); }
  void on_load_micro_batch(const InstructionList&, const Instruction& i) { add_call(i); }
  void on_unit_compute(const InstructionList&, const Instruction& i) { add_call(i); }
  void on_transfer(const InstructionList&, const Instruction& i) { add_call(i); }
  void on_release(const InstructionList&, const Instruction& i) { add_call(i); }
  void on_gradient_norm(const InstructionList&, const Instruction& i) { add_call(i); }
  void on_accumulate(const InstructionList&, const Instruction& i) { add_call(i); }
  void on_optimizer_step(const InstructionList&, const Instruction& i) { add_call(i); }
  void on_end_step(const InstructionList&, const Instruction& i) { add_call(i); }
  void on_send(const InstructionList& list, const Instruction& i) { add_message(list, i); }
  void on_recv(const InstructionList& list, const Instruction& i) { add_message(list, i); }
  void on_collective(const InstructionList&, const Instruction& i) {
    add_call(i);
    Endpoint& e = add_endpoint();
    e.group = i.group;
    e.ordinal = graph_.group_calls[i.group.index()]++;
  }

 private:
  /// An edge from a call to a later one; only_queue: nothing but a stream orders them.
  struct Edge {
    std::int32_t from;
    std::int32_t to;
    bool only_queue;
  };

  static constexpr std::size_t kHostQueue = 0;
  static constexpr std::size_t kProgressQueue = 1;

  std::size_t queue_of(const Instruction& i) const {
    if (style_ == ExecutionStyle::kAsynchronous) return static_cast<std::size_t>(i.stream);
    const bool communicates =
        i.stream == Stream::kP2p || i.stream == Stream::kReduce || i.stream == Stream::kGather;
    return communicates ? kProgressQueue : kHostQueue;
  }

  void add_call(const Instruction& i) {
    const std::int32_t call = static_cast<std::int32_t>(graph_.calls.size());
    graph_.calls.push_back({});
    graph_.calls.back().first = index_;
    graph_.calls.back().endpoints = {endpoint_count(), endpoint_count()};
    graph_.call_of.push_back(call);
    const std::size_t queue = queue_of(i);
    if (last_in_queue_[queue] >= 0) {
      // A CPU host that is busy has not even issued its next instruction.
      const bool only_queue = style_ == ExecutionStyle::kAsynchronous || queue == kProgressQueue;
      edges_.push_back({last_in_queue_[queue], call, only_queue});
    }
    if (style_ == ExecutionStyle::kInline && queue == kProgressQueue &&
        last_in_queue_[kHostQueue] >= 0) {
      edges_.push_back({last_in_queue_[kHostQueue], call, false});
    }
    last_in_queue_[queue] = call;
  }

  void add_message(const InstructionList& list, const Instruction& i) {
    const bool joins = i.fuse >= 0 && index_ > 0 && last_message_ == index_ - 1 &&
                       list.instructions[static_cast<std::size_t>(index_ - 1)].fuse == i.fuse;
    if (joins) {
      graph_.call_of.push_back(graph_.call_of.back());
      ++graph_.calls.back().count;
    } else {
      add_call(i);
    }
    last_message_ = index_;
    Endpoint& e = add_endpoint();
    e.peer_pp = program_.stage_rank[static_cast<std::size_t>(i.peer_stage)];
    const bool gradient =
        i.kind == InstructionKind::kSendGradient || i.kind == InstructionKind::kRecvGradient;
    e.ordinal = message_count_[{is_send(i.kind), gradient, e.peer_pp, i.unit.value, i.boundary}]++;
  }

  std::int32_t endpoint_count() const { return static_cast<std::int32_t>(graph_.endpoints.size()); }

  Endpoint& add_endpoint() {
    Endpoint& e = graph_.endpoints.emplace_back();
    e.call = graph_.call_of.back();
    e.instruction = index_;
    graph_.calls.back().endpoints.end = endpoint_count();
    return e;
  }

  void connect(const InstructionList& list) {
    for (std::size_t i = 0; i < list.instructions.size(); ++i) {
      const Range waits = list.instructions[i].waits;
      for (std::int32_t w = waits.begin; w < waits.end; ++w) {
        const InstructionId awaited = list.waits[static_cast<std::size_t>(w)];
        edges_.push_back({graph_.call_of[awaited.index()], graph_.call_of[i], false});
      }
    }
    for (const Edge& e : edges_) {
      ++graph_.calls[static_cast<std::size_t>(e.to)].pending;
      ++graph_.calls[static_cast<std::size_t>(e.from)].successors.end;
    }
    std::int32_t begin = 0;
    for (std::size_t c = 0; c < graph_.calls.size(); ++c) {
      Call& call = graph_.calls[c];
      const std::int32_t count = call.successors.end;
      call.successors = {begin, begin};
      begin += count;
      if (call.pending == 0) graph_.roots.push_back(static_cast<std::int32_t>(c));
    }
    graph_.successors.resize(edges_.size());
    for (const Edge& e : edges_) {
      Range& range = graph_.calls[static_cast<std::size_t>(e.from)].successors;
      graph_.successors[static_cast<std::size_t>(range.end++)] = e.to * 2 + (e.only_queue ? 1 : 0);
    }
  }

  const Program& program_;
  ExecutionStyle style_;
  ClassGraph& graph_;
  std::int32_t index_ = 0;
  std::int32_t last_message_ = -2;
  std::array<std::int32_t, kStreamCount> last_in_queue_{};
  std::map<std::tuple<bool, bool, std::int32_t, std::int32_t, std::int32_t>, std::int32_t>
      message_count_;
  std::vector<Edge> edges_;
};

/// What a message is called on both sides: {gradient, sender's pp, unit, boundary, ordinal}.
using MessageName = std::tuple<bool, std::int32_t, std::int32_t, std::int32_t, std::int32_t>;

/// Receives of one class, by message name.
std::vector<std::pair<MessageName, std::int32_t>> receives_of(const ClassGraph& graph) {
  std::vector<std::pair<MessageName, std::int32_t>> receives;
  for (std::size_t e = 0; e < graph.endpoints.size(); ++e) {
    const Endpoint& endpoint = graph.endpoints[e];
    const Instruction& i = graph.list->instructions[static_cast<std::size_t>(endpoint.instruction)];
    if (!is_recv(i.kind)) continue;
    receives.push_back({{i.kind == InstructionKind::kRecvGradient, endpoint.peer_pp, i.unit.value,
                         i.boundary, endpoint.ordinal},
                        static_cast<std::int32_t>(e)});
  }
  std::sort(receives.begin(), receives.end());
  return receives;
}

/// Per endpoint of a sending class: the receiving class's endpoint, or -1.
std::vector<std::int32_t> pair_classes(
    const ClassGraph& sender, std::int32_t sender_pp, std::int32_t receiver_pp,
    const std::vector<std::pair<MessageName, std::int32_t>>& receives) {
  std::vector<std::int32_t> paired(sender.endpoints.size(), -1);
  for (std::size_t e = 0; e < sender.endpoints.size(); ++e) {
    const Endpoint& endpoint = sender.endpoints[e];
    const Instruction& i =
        sender.list->instructions[static_cast<std::size_t>(endpoint.instruction)];
    if (!is_send(i.kind) || endpoint.peer_pp != receiver_pp) continue;
    const MessageName name{i.kind == InstructionKind::kSendGradient, sender_pp, i.unit.value,
                           i.boundary, endpoint.ordinal};
    const auto at =
        std::lower_bound(receives.begin(), receives.end(), std::pair(name, std::int32_t{-1}));
    if (at != receives.end() && at->first == name) paired[e] = at->second;
  }
  return paired;
}

class Matcher {
 public:
  Matcher(const Program& program, const std::vector<ClassGraph>& graphs)
      : program_(program), graphs_(graphs), world_(program.world_size()) {
    std::int64_t total = 0;
    for (int rank = 0; rank < world_; ++rank) {
      out_.endpoint_base.push_back(total);
      total += static_cast<std::int64_t>(graph_of(rank).endpoints.size());
    }
    out_.match_of.assign(static_cast<std::size_t>(total), -1);
    for (const ClassGraph& g : graphs) receives_.push_back(receives_of(g));
  }

  Matching run() {
    for (int rank = 0; rank < world_; ++rank) match_sends(rank);
    for (std::size_t g = 0; g < program_.communication_groups.size(); ++g) {
      match_group(CommunicationGroupId(g));
    }
    return std::move(out_);
  }

 private:
  std::int32_t class_index(int rank) const {
    return program_.rank_class[static_cast<std::size_t>(rank)];
  }
  const ClassGraph& graph_of(int rank) const {
    return graphs_[static_cast<std::size_t>(class_index(rank))];
  }

  void add_member(int rank, std::int32_t endpoint) {
    out_.members.push_back({rank, endpoint});
    ++out_.matches.back().members.end;
    const std::int64_t base = out_.endpoint_base[static_cast<std::size_t>(rank)];
    out_.match_of[static_cast<std::size_t>(base + endpoint)] =
        static_cast<std::int32_t>(out_.matches.size()) - 1;
  }

  void open_match() {
    const std::int32_t at = static_cast<std::int32_t>(out_.members.size());
    out_.matches.push_back({{at, at}});
  }

  void match_sends(int rank) {
    const ClassGraph& graph = graph_of(rank);
    const MeshCoordinate here = program_.mesh.coordinate(rank);
    for (std::size_t e = 0; e < graph.endpoints.size(); ++e) {
      const Endpoint& endpoint = graph.endpoints[e];
      const Instruction& i =
          graph.list->instructions[static_cast<std::size_t>(endpoint.instruction)];
      if (!is_send(i.kind)) continue;
      MeshCoordinate there = here;
      there.at[0] = endpoint.peer_pp;
      const int peer = program_.mesh.rank_of(there);
      const auto key = std::pair(class_index(rank), class_index(peer));
      auto pairing = pairings_.find(key);
      if (pairing == pairings_.end()) {
        const auto& receives = receives_[static_cast<std::size_t>(key.second)];
        pairing =
            pairings_.emplace(key, pair_classes(graph, here.pp(), there.pp(), receives)).first;
      }
      const std::int32_t other = pairing->second[e];
      if (other < 0) continue;
      open_match();
      add_member(rank, static_cast<std::int32_t>(e));
      add_member(peer, other);
    }
  }

  /// The k-th collective that each member issues on the group is one match.
  void match_group(CommunicationGroupId group) {
    std::vector<bool> seen(static_cast<std::size_t>(world_), false);
    std::vector<std::vector<std::int32_t>> endpoints(graphs_.size());  // per class, by ordinal
    for (std::size_t c = 0; c < graphs_.size(); ++c) {
      const ClassGraph& graph = graphs_[c];
      for (std::size_t e = 0; e < graph.endpoints.size(); ++e) {
        if (graph.endpoints[e].group == group) endpoints[c].push_back(static_cast<std::int32_t>(e));
      }
    }
    for (int rank = 0; rank < world_; ++rank) {
      if (seen[static_cast<std::size_t>(rank)]) continue;
      if (endpoints[static_cast<std::size_t>(class_index(rank))].empty()) continue;
      const std::vector<int> members = group_members(program_, group, rank);
      std::size_t calls = endpoints[static_cast<std::size_t>(class_index(rank))].size();
      for (int member : members) {
        seen[static_cast<std::size_t>(member)] = true;
        calls = std::min(calls, endpoints[static_cast<std::size_t>(class_index(member))].size());
      }
      for (std::size_t k = 0; k < calls; ++k) {
        open_match();
        for (int member : members) {
          add_member(member, endpoints[static_cast<std::size_t>(class_index(member))][k]);
        }
      }
    }
  }

  const Program& program_;
  const std::vector<ClassGraph>& graphs_;
  int world_;
  std::vector<std::vector<std::pair<MessageName, std::int32_t>>> receives_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int32_t>> pairings_;
  Matching out_;
};

}  // namespace

ClassGraph build_class_graph(const Program& program, int rank_class, ProgramKind kind,
                             ExecutionStyle style) {
  ClassGraph graph;
  const RankClass& c = program.classes[static_cast<std::size_t>(rank_class)];
  GraphBuilder(program, style, graph).build(c.programs[static_cast<std::size_t>(kind)]);
  return graph;
}

Matching match_endpoints(const Program& program, const std::vector<ClassGraph>& graphs) {
  return Matcher(program, graphs).run();
}

}  // namespace bayplan::sim
