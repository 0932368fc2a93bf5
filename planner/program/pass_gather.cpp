// ZeRO 3: parameters are whole only while something uses them. Every use of a sharded group gets a
// buffer that an all_gather fills; the gather is issued `prefetch` uses ahead, so that it overlaps
// with what computes until then, and pass_release ends the buffer behind its last use.
#include <algorithm>
#include <vector>

#include "planner/program/lowering.h"

namespace bayplan {
namespace {

class Gatherer {
 public:
  Gatherer(Lowering& lowering, ClassDraft& c, Draft& draft)
      : lowering_(lowering), c_(c), draft_(draft) {
    held_.resize(lowering.program.parameter_groups.size());
  }

  void run() {
    std::vector<Instruction> before = std::move(draft_.list.instructions);
    draft_.list.instructions.clear();
    std::vector<std::vector<Gather>> gathers(before.size());
    std::vector<std::size_t> users;  // instructions that use some gathered group, in order
    for (std::size_t i = 0; i < before.size(); ++i) {
      follow_run(before[i]);
      bool uses = false;
      for (std::int32_t a = before[i].accesses.begin; a < before[i].accesses.end; ++a) {
        Access& access = draft_.list.accesses[static_cast<std::size_t>(a)];
        const Buffer& b = c_.result.buffers[access.buffer.index()];
        if (b.role != BufferRole::kParameters) continue;
        const ParameterGroupId g = b.parameter_group;
        if (!lowering_.group(g).gathered) continue;
        if (!uses) users.push_back(i);
        uses = true;
        const std::size_t use = users.size() - 1;
        Held& held = held_[g.index()];
        if (!keeps(held, use)) {
          held.buffer = add_buffer(g);
          const auto ahead = static_cast<std::size_t>(lowering_.plan.prefetch);
          gathers[users[use - std::min(use, ahead)]].push_back({g, held.buffer, before[i]});
        }
        held.use = use;
        held.run = run_;
        access = use_whole(held.buffer, AccessMode::kRead);
      }
    }
    for (std::size_t i = 0; i < before.size(); ++i) {
      for (const Gather& gather : gathers[i]) emit(gather);
      draft_.list.instructions.push_back(before[i]);
    }
  }

 private:
  struct Held {
    BufferId buffer;
    std::size_t use = 0;
    int run = -1;
  };
  struct Gather {
    ParameterGroupId group;
    BufferId buffer;
    Instruction user;
  };

  /// Counts runs of consecutive compute of one stage and direction.
  void follow_run(const Instruction& i) {
    if (!i.unit.valid() || i.stream != Stream::kCompute) return;
    const bool forward = i.kind == InstructionKind::kForward;
    if (i.stage == stage_ && forward == forward_) return;
    stage_ = i.stage;
    forward_ = forward;
    ++run_;
  }

  bool keeps(const Held& held, std::size_t use) const {
    if (!held.buffer.valid()) return false;
    switch (lowering_.plan.reshard) {
      case Reshard::kUnit:
        return use - held.use <= 1;
      case Reshard::kChunk:
        return use - held.use <= 1 || held.run == run_;
      case Reshard::kStep:
        return true;
    }
    return false;
  }

  BufferId add_buffer(ParameterGroupId g) {
    const ParameterGroup& group = lowering_.group(g);
    Buffer b;
    b.role = BufferRole::kGatheredParameters;
    b.parameter_group = g;
    b.bytes = group.padded_elements * dtype_size(group.dtype);
    c_.result.buffers.push_back(b);
    return BufferId(c_.result.buffers.size() - 1);
  }

  Access use_whole(BufferId b, AccessMode mode) const { return use(c_, b, mode); }

  void emit(const Gather& gather) {
    Instruction i;
    i.kind = InstructionKind::kAllGather;
    i.stream = Stream::kGather;
    i.purpose = Purpose::kParams;
    i.group = lowering_.data_parallel;
    i.parameter_group = gather.group;
    i.stage = gather.user.stage;
    i.unit = gather.user.unit;
    i.micro_batch = gather.user.micro_batch;
    draft_.add(i, {use_whole(c_.parameters[gather.group.index()], AccessMode::kRead),
                   use_whole(gather.buffer, AccessMode::kWrite)});
  }

  Lowering& lowering_;
  ClassDraft& c_;
  Draft& draft_;
  std::vector<Held> held_;  // per parameter group
  std::int32_t stage_ = -1;
  bool forward_ = false;
  int run_ = 0;
};

}  // namespace

void pass_gather(Lowering& lowering, ClassDraft& c) {
  const auto& groups = lowering.program.parameter_groups;
  if (std::none_of(groups.begin(), groups.end(),
                   [](const ParameterGroup& g) { return g.gathered; }))
    return;
  for (const ProgramKind kind : {ProgramKind::kTrainStep, ProgramKind::kEvalStep})
    Gatherer(lowering, c, c.draft(kind)).run();
}

}  // namespace bayplan
