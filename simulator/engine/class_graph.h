// The static dependencies of one rank class's instruction list: calls (an instruction, or a fused
// group of sends and receives), what each must wait for, and with whom it must meet. Built once
// per class; every rank of the class replays it. Not for: time (engine.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/program/program.h"

namespace bayplan::sim {

/// How ranks execute their list; follows from the device class.
enum class ExecutionStyle : std::uint8_t {
  kAsynchronous,  // GPU: the host issues ahead, every stream is a queue of its own
  kInline,        // CPU: the host computes, one progress thread does all communication
};

struct Call {
  std::int32_t first = 0;  // instruction
  std::int32_t count = 1;
  Range endpoints;           // empty for calls without partners
  Range successors;          // into ClassGraph::successors
  std::int32_t pending = 0;  // how often it appears in successors
};

/// One side of a message or of a collective.
struct Endpoint {
  std::int32_t call = 0;
  std::int32_t instruction = 0;
  CommunicationGroupId group;  // collectives
  std::int32_t peer_pp = -1;   // messages: pipeline coordinate of the peer
  std::int32_t ordinal = 0;    // counts the group's collectives, or equal messages to that peer
};

struct ClassGraph {
  const InstructionList* list = nullptr;
  std::vector<Call> calls;               // by first instruction
  std::vector<std::int32_t> call_of;     // per instruction
  std::vector<std::int32_t> successors;  // call · 2 + (1 when only the queue orders them)
  std::vector<std::int32_t> roots;       // calls that wait for nothing
  std::vector<Endpoint> endpoints;
  std::vector<std::int32_t> group_calls;  // collectives per communication group
};

ClassGraph build_class_graph(const Program& program, int rank_class, ProgramKind kind,
                             ExecutionStyle style);

/// One meeting of two or more ranks.
struct MatchMember {
  std::int32_t rank = 0;
  std::int32_t endpoint = 0;
};
struct Match {
  Range members;  // messages: sender, then receiver; collectives: ascending
};

/// All meetings of one execution of the program.
struct Matching {
  std::vector<Match> matches;
  std::vector<MatchMember> members;
  std::vector<std::int64_t> endpoint_base;  // per rank: position of its endpoint 0 in match_of
  std::vector<std::int32_t> match_of;       // -1: no partner
};

/// Pairs sends with receives and joins collectives. An endpoint without partner is left alone:
/// its rank will wait for ever, which simulate() reports.
Matching match_endpoints(const Program& program, const std::vector<ClassGraph>& graphs);

}  // namespace bayplan::sim
