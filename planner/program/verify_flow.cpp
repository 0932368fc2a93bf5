// The values that persistent buffers pass on or accumulate: contributions, reduction, tied copies,
// norm, optimizer, gather. (Between buffers that one instruction writes, order follows from "read
// after written" in verify_hazards.cpp.)
#include <algorithm>

#include "planner/program/verify_job.h"

namespace bayplan::verification {
namespace {

/// Walks the list and follows gradients, scalars and parameters from state to state.
class Flow {
 public:
  Flow(const Job& job, Findings& findings)
      : job_(job), findings_(findings), groups_(job.p.program.parameter_groups.size()) {
    for (UnitId u : job.units) {
      for (ParameterGroupId g : job.p.program.units[u.index()].groups) {
        groups_[g.index()].expected += job.p.rank_class.micro_batches;
      }
      if (job.class_of(u).loss >= 0) losses_expected_ += job.p.rank_class.micro_batches;
    }
    const auto micro_batches = static_cast<std::size_t>(job.p.rank_class.micro_batches);
    for (ParameterGroupId g : job.groups) {
      if (!job.group(g).reduced_each_micro_batch) continue;
      state(g).of_micro_batch.assign(micro_batches, 0);
      state(g).micro_batch_reduced.assign(micro_batches, false);
    }
  }

  void check() {
    for (std::int32_t i = 0; i < job_.p.size() && !findings_.full(); ++i) follow(i, job_.p.at(i));
  }

 private:
  struct GroupState {
    std::int64_t expected = 0;  // contributions of a step
    std::int64_t contributions = 0;
    bool reduced = false;
    std::vector<std::int64_t> of_micro_batch;  // contributions; only where each is reduced
    std::vector<bool> micro_batch_reduced;
    std::int64_t accumulated = 0;
    bool tied = false;
    bool normed = false;
    bool stepped = false;
    bool returned = false;  // from a step on the host
  };

  GroupState& state(ParameterGroupId g) { return groups_[g.index()]; }

  void report(std::int32_t i, const std::string& message) {
    findings_.add(Violation::kUseBeforeWrite, job_.p.kind, job_.p.rank, InstructionId(i),
                  describe(job_.p.list, i) + ' ' + message);
  }

  void follow(std::int32_t index, const Instruction& i) {
    switch (i.kind) {
      case InstructionKind::kForward:
      case InstructionKind::kBackward:
      case InstructionKind::kBackwardInput:
      case InstructionKind::kBackwardWeight:
      case InstructionKind::kRecompute:
        return follow_compute(index, i);
      case InstructionKind::kReduceScatter:
      case InstructionKind::kAllReduce:
      case InstructionKind::kAllGather:
        return follow_collective(index, i);
      case InstructionKind::kAccumulate:
        return follow_accumulate(index, i);
      case InstructionKind::kGradientNorm:
        return follow_norm(index, i);
      case InstructionKind::kOptimizerStep:
        return follow_step(index, i);
      case InstructionKind::kInitialize:
      case InstructionKind::kLoadMicroBatch:
      case InstructionKind::kSendActivation:
      case InstructionKind::kRecvActivation:
      case InstructionKind::kSendGradient:
      case InstructionKind::kRecvGradient:
      case InstructionKind::kPrefetch:
      case InstructionKind::kOffload:
        return follow_transfer(index, i);
      case InstructionKind::kAllToAll:
      case InstructionKind::kBroadcast:
      case InstructionKind::kRelease:
      case InstructionKind::kEndStep:
        return;
    }
  }

  void follow_compute(std::int32_t index, const Instruction& i) {
    if (!i.unit.valid()) return;
    const bool weight =
        i.kind == InstructionKind::kBackward || i.kind == InstructionKind::kBackwardWeight;
    for (ParameterGroupId g : job_.p.program.units[i.unit.index()].groups) {
      GroupState& s = state(g);
      if (s.stepped) report(index, "uses " + name(g) + " behind its update");
      if (!weight || !job_.group(g).trainable) continue;
      if (s.reduced || s.tied || s.normed) {
        report(index, "adds to the gradient of " + name(g) + " behind its reduction or norm");
      }
      ++s.contributions;
      if (!has_micro_batch(s, i)) continue;
      if (s.micro_batch_reduced[static_cast<std::size_t>(i.micro_batch)])
        report(index, "adds to the gradient of " + name(g) + " behind its reduction");
      ++s.of_micro_batch[static_cast<std::size_t>(i.micro_batch)];
    }
    if (i.kind == InstructionKind::kForward && job_.class_of(i.unit).loss >= 0) {
      if (scalars_reduced_) report(index, "adds to the loss behind its sum over ranks");
      ++losses_;
    }
    if (i.kind == InstructionKind::kBackwardInput) inputs_.push_back({i.unit, i.micro_batch});
    if (i.kind == InstructionKind::kBackwardWeight && updates_statistics(i.unit) &&
        std::find(inputs_.begin(), inputs_.end(), std::pair(i.unit, i.micro_batch)) ==
            inputs_.end()) {
      report(index, "reads statistics that backward_input has yet to update");
    }
  }

  static bool has_micro_batch(const GroupState& s, const Instruction& i) {
    return i.micro_batch >= 0 && static_cast<std::size_t>(i.micro_batch) < s.of_micro_batch.size();
  }

  /// Around a step on the host. Parameters come back updated, and are whole again only then.
  void follow_transfer(std::int32_t index, const Instruction& i) {
    if (!i.parameter_group.valid() || i.purpose == Purpose::kCheckpoint) return;
    GroupState& s = state(i.parameter_group);
    if (i.kind == InstructionKind::kPrefetch) {
      if (!s.stepped) report(index, "brings back parameters that are not updated yet");
      s.returned = true;
    } else if (i.purpose == Purpose::kGrads) {
      if (!final(i.parameter_group)) report(index, "takes a gradient that is not complete");
      if (s.stepped) report(index, "comes behind the step that uses it");
    } else if (s.stepped) {
      report(index, "takes parameters behind their update");
    }
  }

  void follow_accumulate(std::int32_t index, const Instruction& i) {
    if (!i.parameter_group.valid()) return;
    GroupState& s = state(i.parameter_group);
    if (!has_micro_batch(s, i)) return;
    if (!s.micro_batch_reduced[static_cast<std::size_t>(i.micro_batch)])
      report(index, "adds a gradient that is not reduced yet");
    if (s.tied || s.normed || s.stepped) report(index, "comes behind uses of the sum");
    if (job_.sharded(i.parameter_group))
      require_group(index, i, job_.group(i.parameter_group).shard_axes, {});
    ++s.accumulated;
  }

  bool updates_statistics(UnitId u) const {
    const std::vector<Operator>& operators = job_.class_of(u).operators;
    return std::any_of(operators.begin(), operators.end(), [](const Operator& o) {
      return operator_spec(o.kind).backward_updates_statistics;
    });
  }

  void follow_collective(std::int32_t index, const Instruction& i) {
    if (i.purpose == Purpose::kNorm || i.purpose == Purpose::kLoss) {
      if (losses_ < losses_expected_) report(index, "sums a loss that is not complete");
      const bool needs_norm = i.purpose == Purpose::kNorm || !job_.has_loss;
      if (needs_norm && !norm_) report(index, "sums scalars that are not written yet");
      require_group(index, i, kAllAxes, {});
      scalars_reduced_ = true;
      return;
    }
    if (!i.parameter_group.valid()) return;
    GroupState& s = state(i.parameter_group);
    const ParameterGroup& group = job_.group(i.parameter_group);
    switch (i.purpose) {
      case Purpose::kGrads:
        if (group.reduced_each_micro_batch) {
          if (!has_micro_batch(s, i)) return;
          const auto m = static_cast<std::size_t>(i.micro_batch);
          if (s.of_micro_batch[m] * job_.p.rank_class.micro_batches < s.expected)
            report(index, "reduces a gradient to which units have yet to be added");
          require_group(index, i, group.replicated_axes, {});
          s.micro_batch_reduced[m] = true;
          return;
        }
        if (s.contributions < s.expected) {
          report(index, "reduces a gradient to which micro-batches have yet to be added");
        }
        if (s.tied || s.normed || s.stepped) report(index, "comes behind uses of what it reduces");
        require_group(index, i, group.replicated_axes, {});
        s.reduced = true;
        return;
      case Purpose::kTiedGrads:
        if (!summed_over_replicas(i.parameter_group)) {
          report(index, "adds copies whose own gradients are not complete");
        }
        if (s.normed || s.stepped) report(index, "comes behind uses of what it sums");
        require_group(index, i, axis_bit(Axis::kPp), group.pp_coordinates);
        s.tied = true;
        return;
      case Purpose::kParams:
        if (!group.gathered && group.state_tier == Tier::kHost && !s.returned)
          report(index, "gathers parameters that are still on the host");
        if (!group.gathered && !s.stepped)
          report(index, "gathers parameters that are not updated yet");
        if (group.gathered && s.stepped) report(index, "gathers parameters behind their update");
        require_group(index, i, group.shard_axes, {});
        return;
      case Purpose::kNone:
      case Purpose::kNorm:
      case Purpose::kLoss:
      case Purpose::kCheckpoint:
      case Purpose::kActivations:
        return;
    }
  }

  bool summed_over_replicas(ParameterGroupId g) {
    const GroupState& s = state(g);
    if (job_.group(g).reduced_each_micro_batch)
      return s.accumulated >= job_.p.rank_class.micro_batches;
    return s.contributions >= s.expected && (s.reduced || !job_.reduced(g));
  }
  bool final(ParameterGroupId g) {
    return summed_over_replicas(g) && (state(g).tied || !job_.tied(g));
  }

  void follow_norm(std::int32_t index, const Instruction& i) {
    norm_ = true;
    if (i.purpose != Purpose::kNorm) return;
    for (ParameterGroupId g : job_.groups) {
      if (!job_.group(g).trainable || !job_.first_copy(g)) continue;
      if (!final(g)) report(index, "reads the gradient of " + name(g) + " before it is complete");
      state(g).normed = true;
    }
    if (scalars_reduced_) report(index, "writes scalars behind their sum over ranks");
  }

  void follow_step(std::int32_t index, const Instruction& i) {
    if (!i.parameter_group.valid()) return;
    if (!final(i.parameter_group)) report(index, "uses a gradient that is not complete");
    if (!norm_ || (job_.p.program.world_size() > 1 && !scalars_reduced_)) {
      report(index, "uses the gradient norm before it is known");
    }
    state(i.parameter_group).stepped = true;
    if (job_.sharded(i.parameter_group)) {
      require_group(index, i, job_.group(i.parameter_group).shard_axes, {});
    }
  }

  /// The instruction's group has to vary on exactly `axes` and pipeline ranks `pp`.
  void require_group(std::int32_t index, const Instruction& i, AxisSet axes,
                     const std::vector<std::int32_t>& pp) {
    const Mesh& mesh = job_.p.program.mesh;
    const CommunicationGroup* group =
        i.group.valid() ? &job_.p.program.communication_groups[i.group.index()] : nullptr;
    if (group != nullptr && effective_axes(mesh, group->axes) == effective_axes(mesh, axes) &&
        all_or(group->pp_coordinates, group->axes) == all_or(pp, axes)) {
      return;
    }
    findings_.add(
        Violation::kMissing, job_.p.kind, job_.p.rank, InstructionId(index),
        describe(job_.p.list, index) + " is over other ranks than those that have to take part");
  }

  /// The pipeline coordinates that a group keeps, written out where it varies on them.
  std::vector<std::int32_t> all_or(std::vector<std::int32_t> pp, AxisSet axes) const {
    if ((axes & axis_bit(Axis::kPp)) == 0) return {};
    if (pp.empty()) {
      for (int c = 0; c < job_.p.program.mesh.pp; ++c) pp.push_back(c);
    }
    return pp;
  }

  static std::string name(ParameterGroupId g) { return "group " + std::to_string(g.value); }

  const Job& job_;
  Findings& findings_;
  std::vector<GroupState> groups_;
  std::vector<std::pair<UnitId, std::int32_t>> inputs_;  // backward_inputs so far
  std::int64_t losses_expected_ = 0;
  std::int64_t losses_ = 0;
  bool norm_ = false;
  bool scalars_reduced_ = false;
};

}  // namespace

void check_flow(const Job& job, Findings& findings) { Flow(job, findings).check(); }

}  // namespace bayplan::verification
