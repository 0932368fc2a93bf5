// Claims about who belongs together: groups, shards, peers, and the bytes that they exchange.
#include <gtest/gtest.h>

#include "planner/program/program.h"
#include "tests/property/random_program.h"

namespace bayplan {
namespace {

/// Mesh pp 2, dp 3, tp 2: rank = (pp · 3 + dp) · 2 + tp.
Program mesh_only() {
  Program p;
  p.mesh.pp = 2;
  p.mesh.dp = 3;
  p.mesh.tp = 2;
  p.stage_rank = {0, 1};
  p.communication_groups = {
      {"world", kAllAxes, {}},
      {"dp", axis_bit(Axis::kDp), {}},
      {"pp and tp", static_cast<AxisSet>(axis_bit(Axis::kPp) | axis_bit(Axis::kTp)), {}},
      {"second stage only", kAllAxes, {1}}};
  return p;
}

TEST(Groups, MembersDifferOnTheGroupsAxesOnly) {
  const Program p = mesh_only();
  const auto members = [&](int group, int rank) {
    return group_members(p, CommunicationGroupId(static_cast<std::int32_t>(group)), rank);
  };
  EXPECT_EQ(members(0, 5).size(), 12u);
  // Rank 9 = (1, 1, 1): dp neighbours (1, d, 1) = 6 + 2d + 1.
  EXPECT_EQ(members(1, 9), (std::vector<int>{7, 9, 11}));
  // (p, 1, t) = 6p + 2 + t.
  EXPECT_EQ(members(2, 9), (std::vector<int>{2, 3, 8, 9}));
  EXPECT_EQ(members(3, 0), (std::vector<int>{6, 7, 8, 9, 10, 11}));
}

TEST(Groups, IndexIsThePositionAmongTheMembers) {
  const Program p = mesh_only();
  for (std::int32_t g = 0; g < 4; ++g) {
    for (int rank = 0; rank < 12; ++rank) {
      const std::vector<int> members = group_members(p, CommunicationGroupId(g), rank);
      const auto at = std::find(members.begin(), members.end(), rank);
      EXPECT_EQ(group_index(p, CommunicationGroupId(g), rank),
                at == members.end() ? -1 : static_cast<int>(at - members.begin()));
    }
  }
}

TEST(Groups, PeersShareAllOtherCoordinates) {
  const Program p = mesh_only();
  EXPECT_EQ(peer_rank(p, 3, 1), 9);   // (0,1,1) -> (1,1,1)
  EXPECT_EQ(peer_rank(p, 10, 0), 4);  // (1,2,0) -> (0,2,0)
}

TEST(Groups, EveryByteThatIsSentIsReceived) {
  // Over all ranks, reduce_scatter and all_gather of n shards send n·(n−1) shards, all_reduce both,
  // and every send has a receive.
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Program p = test::lower_tiny(test::random_plan(seed));
    std::int64_t sent = 0, messages_in = 0, expected = 0;
    for (int rank = 0; rank < p.world_size(); ++rank) {
      const InstructionList& list = p.list(rank, ProgramKind::kTrainStep);
      for (const Instruction& i : list.instructions) {
        if (!is_matched(i.kind)) continue;
        const ByteInterval payload = collective_payload(p, rank, list, i).bytes;
        const std::int64_t bytes = payload.end - payload.begin;
        sent += sent_bytes(p, rank, list, i);
        if (is_send(i.kind)) expected += bytes;
        if (is_recv(i.kind)) messages_in += bytes;
        if (!is_collective(i.kind) || group_index(p, i.group, rank) != 0) continue;
        const auto n = static_cast<std::int64_t>(group_members(p, i.group, rank).size());
        // Member by member the shares of an all_reduce differ; over all members they add up.
        expected += (i.kind == InstructionKind::kAllReduce ? 2 : 1) * bytes * (n - 1);
      }
    }
    EXPECT_EQ(sent, expected) << seed;
    std::int64_t messages_out = 0;
    for (int rank = 0; rank < p.world_size(); ++rank) {
      const InstructionList& list = p.list(rank, ProgramKind::kTrainStep);
      for (const Instruction& i : list.instructions) {
        if (is_send(i.kind)) messages_out += sent_bytes(p, rank, list, i);
      }
    }
    EXPECT_EQ(messages_in, messages_out);
  }
}

}  // namespace
}  // namespace bayplan
