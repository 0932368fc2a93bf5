// Matched instructions: each finds its partners, and partners agree. Messages match in issue
// order per (sender, receiver, activation or gradient, unit, boundary), collectives in issue order
// per group.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "planner/core/check.h"
#include "planner/program/verify_internal.h"

namespace bayplan::verification {
namespace {

class Matcher {
 public:
  Matcher(const Program& program, ProgramKind kind, const Folding& folding, Findings& findings)
      : program_(program), kind_(kind), folding_(folding), findings_(findings) {}

  Matching match() {
    for (std::size_t p = 0; p < folding_.players.size(); ++p) {
      const InstructionList& list = program_.list(folding_.players[p], kind_);
      result_.match_of.emplace_back(list.instructions.size(), -1);
      for (std::size_t i = 0; i < list.instructions.size(); ++i) {
        if (is_matched(list.instructions[i].kind)) sort_in(static_cast<std::int32_t>(p), i);
      }
    }
    for (const auto& [key, channel] : channels_) pair_up(channel);
    for (const auto& [key, circle] : circles_) gather(circle);
    return std::move(result_);
  }

 private:
  using Side = Matching::Side;
  struct Channel {
    std::vector<Side> sends, receives;
  };
  struct Circle {
    std::map<std::int32_t, std::vector<Side>> members;  // by player; every member has an entry
  };

  const InstructionList& list(std::int32_t player) const {
    return program_.list(folding_.players[static_cast<std::size_t>(player)], kind_);
  }
  const Instruction& at(Side s) const {
    return list(s.player).instructions[static_cast<std::size_t>(s.instruction)];
  }
  std::string name(Side s) const {
    return describe(list(s.player), s.instruction) + " of rank " + std::to_string(rank(s));
  }
  int rank(Side s) const { return folding_.players[static_cast<std::size_t>(s.player)]; }
  std::int64_t bytes(Side s) const {
    const ByteInterval b = collective_payload(program_, rank(s), list(s.player), at(s)).bytes;
    return b.end - b.begin;
  }
  BufferRole role(Side s) const {
    const InstructionList& l = list(s.player);
    const Access& a = l.accesses[static_cast<std::size_t>(at(s).accesses.begin)];
    return program_.class_of(rank(s)).buffers[a.buffer.index()].role;
  }
  void report(Violation v, Side s, std::string message) {
    findings_.add(v, kind_, rank(s), InstructionId(s.instruction), std::move(message));
  }

  void sort_in(std::int32_t player, std::size_t index) {
    const Side side{player, static_cast<std::int32_t>(index)};
    const Instruction& i = at(side);
    if (is_collective(i.kind)) {
      const std::vector<std::int32_t>& members = members_of(i.group, player);
      Circle& circle = circles_[{i.group.value, members.front()}];
      for (std::int32_t m : members) circle.members[m];
      circle.members[player].push_back(side);
      return;
    }
    const std::int32_t peer =
        folding_.player_of[static_cast<std::size_t>(peer_rank(program_, rank(side), i.peer_stage))];
    const bool gradient =
        i.kind == InstructionKind::kSendGradient || i.kind == InstructionKind::kRecvGradient;
    const bool send = is_send(i.kind);
    Channel& channel =
        channels_[{send ? player : peer, send ? peer : player, gradient, i.unit.value, i.boundary}];
    (send ? channel.sends : channel.receives).push_back(side);
  }

  const std::vector<std::int32_t>& members_of(CommunicationGroupId group, std::int32_t player) {
    std::vector<std::int32_t>& members = members_[{group.value, player}];
    if (members.empty()) {
      for (int r :
           group_members(program_, group, folding_.players[static_cast<std::size_t>(player)])) {
        members.push_back(folding_.player_of[static_cast<std::size_t>(r)]);
      }
      std::sort(members.begin(), members.end());
      members.erase(std::unique(members.begin(), members.end()), members.end());
    }
    return members;
  }

  void record(std::vector<Side> sides) {
    const auto id = static_cast<std::int32_t>(result_.matches.size());
    for (Side s : sides) {
      result_
          .match_of[static_cast<std::size_t>(s.player)][static_cast<std::size_t>(s.instruction)] =
          id;
    }
    result_.matches.push_back(std::move(sides));
  }

  void pair_up(const Channel& channel) {
    const std::size_t pairs = std::min(channel.sends.size(), channel.receives.size());
    const bool lopsided = channel.sends.size() != channel.receives.size();
    if (lopsided) report_unpaired(channel);
    result_.complete = result_.complete && !lopsided;
    for (std::size_t k = 0; k < pairs; ++k) {
      const Side send = channel.sends[k];
      const Side receive = channel.receives[k];
      record({send, receive});
      const auto both = [&] { return name(receive) + " and " + name(send); };
      if (at(send).micro_batch != at(receive).micro_batch) {
        if (lopsided) continue;  // all later pairs are shifted by the missing one
        report(Violation::kGroupOrder, receive,
               both() + " meet, but are of different micro-batches");
      } else if (at(send).peer_stage != at(receive).stage ||
                 at(receive).peer_stage != at(send).stage) {
        report(Violation::kUnmatched, receive, both() + " name different stages as their partner");
      } else if (bytes(send) != bytes(receive)) {
        report(Violation::kSizeMismatch, receive,
               name(receive) + " expects " + std::to_string(bytes(receive)) + " bytes, " +
                   name(send) + " sends " + std::to_string(bytes(send)));
      } else if (at(send).purpose != at(receive).purpose) {
        report(Violation::kSizeMismatch, receive, both() + " differ in purpose");
      }
    }
  }

  /// Names the first message whose micro-batch the other side lacks.
  void report_unpaired(const Channel& channel) {
    const bool more_sends = channel.sends.size() > channel.receives.size();
    const std::vector<Side>& longer = more_sends ? channel.sends : channel.receives;
    const std::vector<Side>& shorter = more_sends ? channel.receives : channel.sends;
    std::multiset<std::int32_t> there;
    for (Side s : shorter) there.insert(at(s).micro_batch);
    for (Side s : longer) {
      const auto it = there.find(at(s).micro_batch);
      if (it != there.end()) {
        there.erase(it);
        continue;
      }
      const int peer = peer_rank(program_, rank(s), at(s).peer_stage);
      return report(Violation::kUnmatched, s,
                    name(s) +
                        (more_sends ? " is never received by rank " : " is never sent by rank ") +
                        std::to_string(peer));
    }
  }

  using Meaning = std::tuple<InstructionKind, Purpose, std::int32_t>;
  Meaning meaning(Side s) const { return {at(s).kind, at(s).purpose, at(s).parameter_group.value}; }

  void gather(const Circle& circle) {
    const std::vector<Side>* longest = nullptr;
    const std::vector<Side>* shortest = nullptr;
    std::int32_t shortest_player = 0;
    for (const auto& [player, sides] : circle.members) {
      if (longest == nullptr || sides.size() > longest->size()) longest = &sides;
      if (shortest == nullptr || sides.size() < shortest->size()) {
        shortest = &sides;
        shortest_player = player;
      }
    }
    if (longest->size() != shortest->size()) {
      std::size_t k = 0;
      result_.complete = false;
      while (k < shortest->size() && meaning((*shortest)[k]) == meaning((*longest)[k])) ++k;
      const Side lost = (*longest)[k];
      return report(
          Violation::kUnmatched, lost,
          name(lost) + " is never joined by rank " +
              std::to_string(folding_.players[static_cast<std::size_t>(shortest_player)]));
    }
    const std::size_t first_match = result_.matches.size();
    for (std::size_t k = 0; k < longest->size(); ++k) {
      std::vector<Side> sides;
      for (const auto& [player, list_of_member] : circle.members)
        sides.push_back(list_of_member[k]);
      record(std::move(sides));
    }
    for (std::size_t k = 0; k < longest->size(); ++k) {
      const std::vector<Side>& sides = result_.matches[first_match + k];
      for (Side s : sides) {
        if (meaning(s) != meaning(sides.front())) {
          return report(Violation::kGroupOrder, s,
                        name(s) + " meets " + name(sides.front()) +
                            ": the members issue their operations in different orders");
        }
        if (bytes(s) != bytes(sides.front()) || role(s) != role(sides.front())) {
          report(Violation::kSizeMismatch, s,
                 name(s) + " is of " + std::to_string(bytes(s)) + " bytes, " + name(sides.front()) +
                     " of " + std::to_string(bytes(sides.front())) + ", or of another type");
        }
      }
    }
  }

  const Program& program_;
  ProgramKind kind_;
  const Folding& folding_;
  Findings& findings_;
  Matching result_;
  /// (sender, receiver, is gradient, unit, boundary)
  std::map<std::tuple<std::int32_t, std::int32_t, bool, std::int32_t, std::int32_t>, Channel>
      channels_;
  /// (group, first member): the members of one group that exists once per value of its other axes
  std::map<std::pair<std::int32_t, std::int32_t>, Circle> circles_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int32_t>> members_;
};

}  // namespace

Matching check_matching(const Program& program, ProgramKind kind, const Folding& folding,
                        Findings& findings) {
  return Matcher(program, kind, folding, findings).match();
}

}  // namespace bayplan::verification
