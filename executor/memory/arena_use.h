// Which arena bytes a rank has used and is using, by what it executed: the measured side of the
// memory prediction. Executing an instruction marks the whole aligned range of every buffer it
// touches; buffers live from the first write to the release. Not for allocating (Device).
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/program/program.h"

namespace bayplan::exec {

/// Bytes of the workspace that the instruction's own tensors need (the rest of its access is for
/// what libraries allocate).
std::int64_t scratch_bytes(const Program& program, const Instruction& instruction);

/// A buffer came to life (bytes > 0) or was released (bytes < 0), by executing `instruction`.
struct LiveBytesChange {
  InstructionId instruction;
  Tier tier = Tier::kDevice;
  std::int64_t bytes = 0;
  friend bool operator==(const LiveBytesChange&, const LiveBytesChange&) = default;
};

/// Not thread-safe: the runner serialises calls.
class ArenaUse {
 public:
  ArenaUse(const Program& program, int rank);

  /// The instruction starts: what it writes first comes to life. True when live bytes changed.
  bool begin(const InstructionList& list, InstructionId id);
  /// The instruction has run. `library_workspace`: it allocated in the workspace behind its
  /// scratch bytes.
  void executed(const InstructionList& list, InstructionId id, bool library_workspace);
  /// A release has run. True when live bytes changed.
  bool release(const InstructionList& list, InstructionId id);
  /// What changed since the last call of this, in execution order.
  std::vector<LiveBytesChange> take_changes() { return std::exchange(changes_, {}); }

  /// End of the highest range that was marked.
  std::int64_t high_water(Tier tier) const { return high_water_[static_cast<std::size_t>(tier)]; }
  /// Aligned bytes of the buffers alive; persistent ones always are.
  std::int64_t live(Tier tier) const { return live_[static_cast<std::size_t>(tier)]; }
  /// Largest number of bytes that an instruction that ran left to libraries.
  std::int64_t workspace_declared() const { return workspace_declared_; }

 private:
  void change(InstructionId id, Tier tier, std::int64_t bytes);

  const Program& program_;
  const RankClass& rank_class_;
  std::vector<bool> alive_;
  std::array<std::int64_t, kTierCount> high_water_{};
  std::array<std::int64_t, kTierCount> live_{};
  std::int64_t workspace_declared_ = 0;
  std::vector<LiveBytesChange> changes_;
};

}  // namespace bayplan::exec
