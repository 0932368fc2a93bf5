// What each kind of instruction touches. A use that is missing, surplus or of another size makes
// an instruction compute something else, which no other proof would notice: forward over half of
// the parameters is free of races. Sizes of buffers: verify_sizes.cpp.
#include <algorithm>

#include "planner/program/verify_internal.h"

namespace bayplan::verification {
namespace {

using Modes = std::uint8_t;  // bit per AccessMode
constexpr Modes kR = 1, kW = 2, kU = 4;

/// The part of a buffer that a use covers.
enum class Part : std::uint8_t {
  kWhole,
  kSlice,    // one of as many slices as the parameter group has replicas
  kHead,     // the first fp64: the loss
  kTail,     // all behind the first fp64
  kAtLeast,  // from offset 0, no less than `bytes`: workspace
};

/// One use that an instruction has to have. The buffer is named by what it holds.
struct Wanted {
  BufferRole role{};
  Region region = Region::kNone;  // kNone: named by role and parameter group
  std::int32_t region_index = 0;
  UnitId unit;
  std::int32_t micro_batch = -1;
  ParameterGroupId group;
  Tier tier = Tier::kDevice;
  Modes modes = kR;
  Part part = Part::kWhole;
  std::int64_t bytes = 0;
  bool met = false;
};

class AccessCheck {
 public:
  AccessCheck(const ClassProgram& p, Findings& findings) : p_(p), findings_(findings) {}

  void check() {
    for (std::int32_t i = 0; i < p_.size() && !findings_.full(); ++i) check(i);
  }

 private:
  const Program& program() const { return p_.program; }
  const ProgramUnit& unit(UnitId u) const { return program().units[u.index()]; }
  const UnitClass& class_of(UnitId u) const {
    return program().graph.classes[static_cast<std::size_t>(unit(u).unit_class)];
  }
  const UnitLayout& layout_of(UnitId u) const { return program().layout_of(u); }
  const ParameterGroup& group(ParameterGroupId g) const {
    return program().parameter_groups[g.index()];
  }
  bool sharded(ParameterGroupId g) const { return degree(program().mesh, group(g).shard_axes) > 1; }
  void report(Violation v, std::int32_t i, const std::string& message) {
    findings_.add(v, p_.kind, p_.rank, InstructionId(i), describe(p_.list, i) + ' ' + message);
  }

  void want(Region region, std::int32_t index, UnitId u, std::int32_t micro_batch, Modes modes) {
    Wanted w;
    w.region = region;
    w.region_index = index;
    w.unit = u;
    w.micro_batch = micro_batch;
    w.modes = modes;
    wanted_.push_back(w);
  }
  void want(BufferRole role, ParameterGroupId g, Modes modes, Part part = Part::kWhole,
            std::int64_t bytes = 0, std::int32_t micro_batch = -1) {
    Wanted w;
    w.role = role;
    w.group = g;
    w.micro_batch = micro_batch;
    w.modes = modes;
    w.part = part;
    w.bytes = bytes;
    wanted_.push_back(w);
  }
  void want_state(ParameterGroupId g, Modes modes, Part part = Part::kWhole) {
    for (BufferRole role : {BufferRole::kMaster, BufferRole::kMoment1, BufferRole::kMoment2}) {
      if (!keeps(program(), group(g), role)) continue;
      want(role, g, modes, part);
      wanted_.back().tier = group(g).state_tier;
    }
  }
  /// The host's copy of the rank's part.
  void want_on_host(BufferRole role, ParameterGroupId g, Modes modes) {
    want(role, g, modes);
    wanted_.back().tier = Tier::kHost;
  }
  void want_parameter_part(ParameterGroupId g, Modes modes) {
    want(BufferRole::kParameters, g, modes,
         sharded(g) && !group(g).gathered ? Part::kSlice : Part::kWhole);
  }
  void want_workspace(std::int64_t bytes) {
    if (bytes > 0) want(BufferRole::kWorkspace, {}, kW, Part::kAtLeast, bytes);
  }
  void want_parameters(UnitId u, ComputeParts parts) {
    for (ParameterGroupId g : unit(u).groups) {
      bool reads = false;
      for (std::size_t p = 0; p < unit(u).parameters.size(); ++p) {
        reads |= unit(u).parameters[p].group == g && reads_parameter(layout_of(u), p, parts);
      }
      if (!reads) continue;
      want(group(g).gathered ? BufferRole::kGatheredParameters : BufferRole::kParameters, g, kR);
    }
  }
  /// The rank's part of the step's gradient.
  void want_gradient_part(ParameterGroupId g, Modes modes) {
    const bool is_shard = group(g).gradient_elements < group(g).padded_elements;
    want(BufferRole::kGradients, g, modes, sharded(g) && !is_shard ? Part::kSlice : Part::kWhole);
  }
  void want_external(UnitId u, std::int32_t micro_batch, Modes modes, bool backward) {
    for (std::size_t e = 0; e < class_of(u).external_kinds.size(); ++e) {
      if (backward && !layout_of(u).external_for_backward[e]) continue;
      want(Region::kExternal, static_cast<std::int32_t>(class_of(u).external_kinds[e]), u,
           micro_batch, modes);
    }
  }

  /// Fills wanted_; false when the kind, or this use of it, has no definition.
  bool define(const Instruction& i) {
    switch (i.kind) {
      case InstructionKind::kInitialize:
        if (!i.parameter_group.valid()) return false;
        want(BufferRole::kParameters, i.parameter_group, kW);
        want_state(i.parameter_group, kW);
        return true;
      case InstructionKind::kLoadMicroBatch:
        return define_load(i);
      case InstructionKind::kForward:
        return of_own_unit(i) && define_forward(i);
      case InstructionKind::kBackward:
      case InstructionKind::kBackwardInput:
      case InstructionKind::kBackwardWeight:
        return of_own_unit(i) && define_backward(i);
      case InstructionKind::kSendActivation:
        want(Region::kBoundaryOutput, i.boundary, i.unit, i.micro_batch, kR);
        return true;
      case InstructionKind::kRecvActivation:
        want(Region::kBoundaryOutput, i.boundary, i.unit, i.micro_batch, kW);
        return true;
      case InstructionKind::kSendGradient:
        want(Region::kBoundaryOutputGradient, i.boundary, i.unit, i.micro_batch, kR);
        return true;
      case InstructionKind::kRecvGradient:
        want(Region::kBoundaryOutputGradient, i.boundary, i.unit, i.micro_batch, kW);
        return true;
      case InstructionKind::kAllGather:
      case InstructionKind::kReduceScatter:
      case InstructionKind::kAllReduce:
        return define_collective(i);
      case InstructionKind::kOffload:
        if (i.purpose == Purpose::kActivations) return define_transfer(i);
        if (!i.parameter_group.valid()) return false;
        if (i.purpose != Purpose::kCheckpoint) return define_state_transfer(i);
        want(BufferRole::kParameters, i.parameter_group, kR,
             group(i.parameter_group).gathered ? Part::kWhole : Part::kSlice);
        want_state(i.parameter_group, kR, sharded(i.parameter_group) ? Part::kWhole : Part::kSlice);
        return true;
      case InstructionKind::kAccumulate:
        return define_accumulate(i);
      case InstructionKind::kGradientNorm:
        return define_norm(i);
      case InstructionKind::kOptimizerStep:
        return define_step(i);
      case InstructionKind::kEndStep:
        if (p_.kind == ProgramKind::kTrainStep) want(BufferRole::kScalars, {}, kR);
        if (p_.kind == ProgramKind::kEvalStep) want(BufferRole::kScalars, {}, kR, Part::kHead);
        return true;
      case InstructionKind::kRelease:
        return true;  // any transient buffer; judged by verify_hazards.cpp
      case InstructionKind::kRecompute:
        return of_own_unit(i) && define_recompute(i);
      case InstructionKind::kPrefetch:
        if (i.purpose == Purpose::kActivations) return define_transfer(i);
        return i.parameter_group.valid() && define_state_transfer(i);
      case InstructionKind::kAllToAll:
      case InstructionKind::kBroadcast:
        return false;  // no meaning has been given to them yet
    }
    return false;
  }

  /// Saved tensors of a block, out or back.
  bool define_transfer(const Instruction& i) {
    if (!of_own_unit(i) || i.parameter_group.valid() || i.group.valid() || i.boundary >= 0)
      return false;
    const UnitLayout& layout = layout_of(i.unit);
    const bool out = i.kind == InstructionKind::kOffload;
    for (const auto& [region, bytes] :
         {std::pair{Region::kSavedForInput, layout.saved_for_input_bytes},
          {Region::kSavedForWeight, layout.saved_for_weight_bytes}}) {
      if (bytes == 0) continue;
      for (const bool host : {false, true}) {
        want(region, 0, i.unit, i.micro_batch, host == out ? kW : kR);
        if (host) wanted_.back().tier = Tier::kHost;
      }
    }
    return true;
  }

  /// Gradients to the host, parameters both ways: around a step that the host makes.
  bool define_state_transfer(const Instruction& i) {
    const ParameterGroupId g = i.parameter_group;
    if (group(g).state_tier != Tier::kHost) return false;
    const bool out = i.kind == InstructionKind::kOffload;
    if (i.purpose == Purpose::kGrads && out) {
      want_gradient_part(g, kR);
      want_on_host(BufferRole::kGradients, g, kW);
      return true;
    }
    if (i.purpose != Purpose::kParams) return false;
    want_parameter_part(g, out ? kR : kW);
    want_on_host(BufferRole::kParameters, g, out ? kW : kR);
    return true;
  }

  bool of_own_unit(const Instruction& i) const {
    return i.unit.valid() && i.micro_batch >= 0 && i.stage == unit(i.unit).stage;
  }

  bool define_load(const Instruction& i) {
    if (i.stage < 0 || i.micro_batch < 0) return false;
    for (std::size_t u = 0; u < program().units.size(); ++u) {
      if (program().units[u].stage == i.stage) {
        want_external(UnitId(u), i.micro_batch, kW, false);
      }
    }
    return true;
  }

  bool define_forward(const Instruction& i) {
    const UnitLayout& layout = layout_of(i.unit);
    want_parameters(i.unit, {.forward = true});
    want_external(i.unit, i.micro_batch, kR, false);
    for (const BoundarySource& s : unit(i.unit).sources) {
      want(Region::kBoundaryOutput, s.output, s.unit, i.micro_batch, kR);
    }
    for (std::size_t o = 0; o < layout.boundary_output_bytes.size(); ++o) {
      want(Region::kBoundaryOutput, static_cast<std::int32_t>(o), i.unit, i.micro_batch, kW);
    }
    if (layout.saved_for_input_bytes > 0) {
      want(Region::kSavedForInput, 0, i.unit, i.micro_batch, kW);
    }
    if (layout.saved_for_weight_bytes > 0) {
      want(Region::kSavedForWeight, 0, i.unit, i.micro_batch, kW);
    }
    want_recomputed(i, true, true, kW);
    // Which of the two is right is a matter of accumulation order.
    if (class_of(i.unit).loss >= 0) want(BufferRole::kScalars, {}, kW | kU, Part::kHead);
    want_workspace(layout.forward_scratch_bytes + layout.workspace_bytes[0]);
    return true;
  }

  void want_recomputed(const Instruction& i, bool for_input, bool for_weight, Modes modes) {
    const UnitLayout& layout = layout_of(i.unit);
    if (for_input && layout.recomputed_for_input_bytes > 0)
      want(Region::kRecomputedForInput, 0, i.unit, i.micro_batch, modes);
    if (for_weight && layout.recomputed_for_weight_bytes > 0)
      want(Region::kRecomputedForWeight, 0, i.unit, i.micro_batch, modes);
  }

  bool define_recompute(const Instruction& i) {
    const UnitLayout& layout = layout_of(i.unit);
    if (!recomputes(layout)) return false;
    want_parameters(i.unit, {.recompute = true});
    for (const BoundarySource& s : unit(i.unit).sources)
      want(Region::kBoundaryOutput, s.output, s.unit, i.micro_batch, kR);
    if (layout.saved_for_input_bytes > 0)
      want(Region::kSavedForInput, 0, i.unit, i.micro_batch, kR);
    if (layout.saved_for_weight_bytes > 0)
      want(Region::kSavedForWeight, 0, i.unit, i.micro_batch, kR);
    want_recomputed(i, true, true, kW);
    want_workspace(layout.forward_scratch_bytes + layout.workspace_bytes[0]);
    return true;
  }

  bool define_backward(const Instruction& i) {
    const UnitLayout& layout = layout_of(i.unit);
    const bool input = i.kind != InstructionKind::kBackwardWeight;
    const bool weight = i.kind != InstructionKind::kBackwardInput;
    const bool split = !(input && weight);
    want_parameters(i.unit, {.input = input, .weight = weight});
    if (weight) want_external(i.unit, i.micro_batch, kR, true);
    const std::vector<BoundarySource>& sources = unit(i.unit).sources;
    for (std::size_t b = 0; b < sources.size(); ++b) {
      if ((input && layout.boundary_input_for_input[b]) ||
          (weight && layout.boundary_input_for_weight[b])) {
        want(Region::kBoundaryOutput, sources[b].output, sources[b].unit, i.micro_batch, kR);
      }
      if (input) {
        want(Region::kBoundaryOutputGradient, sources[b].output, sources[b].unit, i.micro_batch,
             kW | kU);
      }
    }
    for (std::size_t o = 0; o < layout.boundary_output_bytes.size(); ++o) {
      if (layout.boundary_output_for_backward[o]) {
        want(Region::kBoundaryOutput, static_cast<std::int32_t>(o), i.unit, i.micro_batch, kR);
      }
      // A fused backward may add into the gradient in place.
      want(Region::kBoundaryOutputGradient, static_cast<std::int32_t>(o), i.unit, i.micro_batch,
           split ? kR : kR | kU);
    }
    if (input && layout.saved_for_input_bytes > 0) {
      want(Region::kSavedForInput, 0, i.unit, i.micro_batch, kR | kU);
    }
    if (layout.saved_for_weight_bytes > 0) {
      want(Region::kSavedForWeight, 0, i.unit, i.micro_batch, input ? kR | kU : kR);
    }
    want_recomputed(i, input, true, kR);
    if (split && layout.split.stash_bytes > 0 && layout.has_backward_input) {
      want(Region::kGradientStash, 0, i.unit, i.micro_batch, input ? kW : kR);
    }
    if (weight) {
      for (ParameterGroupId g : unit(i.unit).groups) {
        if (!group(g).trainable) continue;
        if (group(g).reduced_each_micro_batch) {
          want(BufferRole::kUnitGradients, g, kW | kU, Part::kWhole, 0, i.micro_batch);
        } else {
          want(BufferRole::kGradients, g, kW | kU);
        }
      }
    }
    const BackwardLayout& backward = split ? layout.split : layout.fused;
    want_workspace(
        (input ? backward.scratch_bytes : 0) +
        std::max(input ? layout.workspace_bytes[1] : 0, weight ? layout.workspace_bytes[2] : 0));
    return true;
  }

  bool define_collective(const Instruction& i) {
    const bool of_group = i.parameter_group.valid();
    const bool all_reduce = i.kind == InstructionKind::kAllReduce;
    switch (i.purpose) {
      case Purpose::kParams:
        if (!of_group || i.kind != InstructionKind::kAllGather) return false;
        if (group(i.parameter_group).gathered) {
          want(BufferRole::kParameters, i.parameter_group, kR);
          want(BufferRole::kGatheredParameters, i.parameter_group, kW);
        } else {
          want(BufferRole::kParameters, i.parameter_group, kU);
        }
        return true;
      case Purpose::kGrads:
        if (!of_group || i.kind == InstructionKind::kAllGather ||
            all_reduce == sharded(i.parameter_group)) {
          return false;
        }
        if (group(i.parameter_group).reduced_each_micro_batch) {
          if (i.micro_batch < 0) return false;
          want(BufferRole::kUnitGradients, i.parameter_group, kU, Part::kWhole, 0, i.micro_batch);
        } else {
          want(BufferRole::kGradients, i.parameter_group, kU);
        }
        return true;
      case Purpose::kTiedGrads:
        if (!of_group || !all_reduce) return false;
        want_gradient_part(i.parameter_group, kU);
        return true;
      case Purpose::kNorm:
        want(BufferRole::kScalars, {}, kU);
        return all_reduce;
      case Purpose::kLoss:
        want(BufferRole::kScalars, {}, kU, Part::kHead);
        return all_reduce;
      case Purpose::kNone:
      case Purpose::kCheckpoint:
      case Purpose::kActivations:
        break;
    }
    return false;
  }

  bool define_accumulate(const Instruction& i) {
    const ParameterGroupId g = i.parameter_group;
    if (i.purpose != Purpose::kGrads || i.micro_batch < 0 || !g.valid() ||
        !group(g).reduced_each_micro_batch) {
      return false;
    }
    want(BufferRole::kUnitGradients, g, kR, sharded(g) ? Part::kSlice : Part::kWhole, 0,
         i.micro_batch);
    want_gradient_part(g, kW | kU);
    return true;
  }

  bool define_norm(const Instruction& i) {
    if (i.purpose == Purpose::kLoss) {
      want(BufferRole::kScalars, {}, kW, Part::kHead);
      return true;
    }
    if (i.purpose != Purpose::kNorm) return false;
    bool has_loss = false;
    for (std::size_t u = 0; u < program().units.size(); ++u) {
      has_loss |= class_of(UnitId(u)).loss >= 0 && on_this_rank(program().units[u].stage);
    }
    want(BufferRole::kScalars, {}, kW, has_loss ? Part::kTail : Part::kWhole);
    // Of several copies of a tied group, the first pipeline rank's counts.
    for (std::size_t g = 0; g < program().parameter_groups.size(); ++g) {
      const ParameterGroup& parameters = program().parameter_groups[g];
      if (parameters.trainable && !parameters.pp_coordinates.empty() &&
          parameters.pp_coordinates.front() == p_.rank_class.pp) {
        want(BufferRole::kGradients, ParameterGroupId(g), kR,
             parameters.gradient_elements < parameters.padded_elements ? Part::kWhole
                                                                       : Part::kSlice);
      }
    }
    return true;
  }

  bool define_step(const Instruction& i) {
    const ParameterGroupId g = i.parameter_group;
    if (!g.valid() || !group(g).trainable) return false;
    const Modes modes = keeps(program(), group(g), BufferRole::kMaster) ? kW : kU;
    want(BufferRole::kScalars, {}, kR);
    want_state(g, kU);
    if (group(g).state_tier == Tier::kHost) {
      want_on_host(BufferRole::kGradients, g, kR);
      want_on_host(BufferRole::kParameters, g, modes);
    } else {
      want_gradient_part(g, kR);
      want_parameter_part(g, modes);
    }
    return true;
  }

  bool on_this_rank(std::int32_t stage) const {
    return program().stage_rank[static_cast<std::size_t>(stage)] == p_.rank_class.pp;
  }

  void check(std::int32_t index) {
    const Instruction& i = p_.at(index);
    wanted_.clear();
    if (!define(i) || i.predicate.valid() || i.run_time_count.valid()) {
      return report(Violation::kMalformed, index,
                    "has a kind, purpose, stage or group under which it means nothing");
    }
    if (i.kind == InstructionKind::kRelease) return;
    for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
      check_access(index, i, p_.access(a));
    }
    for (const Wanted& w : wanted_) {
      if (!w.met) report(Violation::kMissing, index, "does not touch " + contents(w));
    }
  }

  void check_access(std::int32_t index, const Instruction& i, const Access& access) {
    const Buffer& buffer = p_.buffer(access.buffer);
    const auto name = [&] { return describe(p_.rank_class, access.buffer); };
    const auto wanted = std::find_if(wanted_.begin(), wanted_.end(),
                                     [&](const Wanted& w) { return !w.met && is_for(w, buffer); });
    if (wanted == wanted_.end()) {
      return report(Violation::kMalformed, index,
                    "touches " + name() + ", which is not its business");
    }
    wanted->met = true;
    if ((wanted->modes & (1u << static_cast<unsigned>(access.mode))) == 0) {
      report(Violation::kMalformed, index, "uses " + name() + " in the wrong mode");
    }
    if (!fits(*wanted, i, access, buffer)) {
      report(Violation::kSizeMismatch, index,
             "touches " + std::to_string(access.bytes) + " bytes from " +
                 std::to_string(access.offset) + (access.sharded ? " in each slice of " : " of ") +
                 name() + ", which has " + std::to_string(buffer.bytes) +
                 ": not the part that it works on");
    }
  }

  static bool is_for(const Wanted& w, const Buffer& b) {
    if (b.tier != w.tier) return false;
    if (w.region != Region::kNone) {
      return b.region == w.region && b.region_index == w.region_index && b.unit == w.unit &&
             b.micro_batch == w.micro_batch;
    }
    return b.region == Region::kNone && b.role == w.role && b.parameter_group == w.group &&
           b.micro_batch == w.micro_batch;
  }

  bool fits(const Wanted& w, const Instruction& i, const Access& access, const Buffer& b) const {
    constexpr auto kScalar = static_cast<std::int64_t>(sizeof(double));
    const std::int64_t slices = access.sharded ? slice_count(program(), i, b) : 1;
    const bool whole = slices == 1 && access.offset == 0 && access.bytes == b.bytes;
    switch (w.part) {
      case Part::kWhole:
        return whole;
      case Part::kSlice: {
        const std::int64_t n = degree(program().mesh, group(b.parameter_group).replicated_axes);
        return n == 1 ? whole
                      : access.sharded && slices == n && access.offset == 0 &&
                            access.bytes * n == b.bytes;
      }
      case Part::kHead:
        return slices == 1 && access.offset == 0 && access.bytes == kScalar;
      case Part::kTail:
        return slices == 1 && access.offset == kScalar && access.bytes == b.bytes - kScalar;
      case Part::kAtLeast:
        return slices == 1 && access.offset == 0 && access.bytes >= w.bytes;
    }
    return false;
  }

  static std::string contents(const Wanted& w) {
    Buffer b;
    b.role = w.role;
    b.region = w.region;
    b.region_index = w.region_index;
    b.unit = w.unit;
    b.micro_batch = w.micro_batch;
    b.parameter_group = w.group;
    return describe_contents(b) + ", which its kind is defined on";
  }
  const ClassProgram& p_;
  Findings& findings_;
  std::vector<Wanted> wanted_;
};

}  // namespace

void check_accesses(const ClassProgram& p, Findings& findings) { AccessCheck(p, findings).check(); }

}  // namespace bayplan::verification
