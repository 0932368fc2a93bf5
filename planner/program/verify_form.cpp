// Well-formedness: every index points somewhere, every range lies inside what it is a range of.
#include "planner/program/unit_layout.h"
#include "planner/program/verify_internal.h"

namespace bayplan::verification {
namespace {

std::string number(std::int64_t n) { return std::to_string(n); }

bool inside(std::int64_t index, std::size_t size) {
  return index >= 0 && static_cast<std::size_t>(index) < size;
}
bool inside_or_none(std::int64_t index, std::size_t size) {
  return index == -1 || inside(index, size);
}
bool inside(Range r, std::size_t size) {
  return r.begin >= 0 && r.begin <= r.end && static_cast<std::size_t>(r.end) <= size;
}

/// Checks one class and remembers where it is.
class ClassForm {
 public:
  ClassForm(const Program& program, const RankClass& rank_class, int rank, Findings& findings)
      : program_(program), class_(rank_class), rank_(rank), findings_(findings) {}

  void check() {
    std::vector<std::int32_t> stages;
    for (std::size_t s = 0; s < program_.stage_rank.size(); ++s) {
      if (program_.stage_rank[s] == class_.pp) stages.push_back(static_cast<std::int32_t>(s));
    }
    if (class_.stages != stages) {
      report(ProgramKind::kTrainStep, {},
             "the class claims other stages than those of pipeline rank " + number(class_.pp));
    }
    if (class_.micro_batches < 0 || class_.micro_batches > program_.job.global_batch) {
      report(ProgramKind::kTrainStep, {},
             number(class_.micro_batches) + " micro-batches, with a global batch of " +
                 number(program_.job.global_batch) + " samples");
    }
    for (std::size_t b = 0; b < class_.buffers.size(); ++b) check_buffer(BufferId(b));
    if (!findings_.empty()) return;  // instructions are judged against sound buffers
    for (int k = 0; k < kProgramKindCount; ++k) {
      const InstructionList& list = class_.programs[static_cast<std::size_t>(k)];
      for (std::size_t i = 0; i < list.instructions.size() && !findings_.full(); ++i) {
        check_instruction(static_cast<ProgramKind>(k), list, i);
      }
    }
  }

 private:
  void report(ProgramKind kind, InstructionId i, std::string message) {
    findings_.add(Violation::kMalformed, kind, rank_, i, std::move(message));
  }

  void check_buffer(BufferId id) {
    const Buffer& b = class_.buffers[id.index()];
    const auto bad = [&](const std::string& what) {
      report(ProgramKind::kTrainStep, {}, "b" + number(id.value) + " " + what);
    };
    if (static_cast<int>(b.tier) >= kTierCount || static_cast<int>(b.role) >= kBufferRoleCount ||
        b.region > Region::kRecomputedForWeight) {
      return bad("has a tier, role or region that does not exist");
    }
    if (b.bytes <= 0) return bad("has " + number(b.bytes) + " bytes");
    std::int64_t end = 0;
    if (b.offset < 0 || b.offset % kTensorAlignment != 0 ||
        __builtin_add_overflow(b.offset, b.bytes, &end) || end > (std::int64_t{1} << 62)) {
      return bad("lies at offset " + number(b.offset) + ", which is not a multiple of " +
                 number(kTensorAlignment) + " in [0, 2^62)");
    }
    if (!inside_or_none(b.unit.value, program_.units.size()) ||
        !inside_or_none(b.parameter_group.value, program_.parameter_groups.size()) ||
        b.micro_batch < -1 || b.micro_batch >= class_.micro_batches || b.region_index < 0) {
      return bad("belongs to a unit, parameter group or micro-batch that does not exist");
    }
    const bool of_unit = b.region != Region::kNone;
    const bool of_group = b.role <= BufferRole::kMoment2 ||
                          b.role == BufferRole::kGatheredParameters ||
                          b.role == BufferRole::kUnitGradients;
    const bool of_micro_batch = of_unit || b.role == BufferRole::kUnitGradients;
    if (of_unit != has_region(b.role) || of_unit != b.unit.valid() ||
        of_micro_batch != (b.micro_batch >= 0) || of_group != b.parameter_group.valid() ||
        (!of_unit && b.region_index != 0)) {
      return bad(
          "mixes what belongs to a unit and micro-batch with what belongs to a parameter "
          "group or to the rank");
    }
    if (of_unit && !fits(b)) return bad("has a role that its region cannot have");
  }

  static bool has_region(BufferRole role) {
    return role == BufferRole::kActivation || role == BufferRole::kSaved ||
           role == BufferRole::kActivationGradient || role == BufferRole::kLogits ||
           role == BufferRole::kRecomputed;
  }

  bool fits(const Buffer& b) const {
    const auto unit_class = static_cast<std::size_t>(program_.units[b.unit.index()].unit_class);
    const bool logits =
        b.region == Region::kSavedForWeight && program_.graph.classes[unit_class].loss >= 0;
    switch (b.region) {
      case Region::kExternal:
      case Region::kBoundaryOutput:
        return b.role == BufferRole::kActivation;
      case Region::kSavedForInput:
      case Region::kSavedForWeight:
        return b.role == (logits ? BufferRole::kLogits : BufferRole::kSaved);
      case Region::kRecomputedForInput:
      case Region::kRecomputedForWeight:
        return b.role == BufferRole::kRecomputed;
      case Region::kBoundaryOutputGradient:
      case Region::kGradientStash:
        return b.role == BufferRole::kActivationGradient;
      case Region::kNone:
      case Region::kBoundaryInput:
      case Region::kScratch:
      case Region::kLoss:
      case Region::kBoundaryInputGradient:
        return false;  // no buffer is of these
    }
    return false;
  }

  void check_instruction(ProgramKind kind, const InstructionList& list, std::size_t index) {
    const Instruction& i = list.instructions[index];
    const auto bad = [&](const std::string& what) { report(kind, InstructionId(index), what); };
    if (static_cast<int>(i.kind) >= kInstructionKindCount ||
        static_cast<int>(i.stream) >= kStreamCount || i.purpose > Purpose::kActivations) {
      return bad("kind, stream or purpose does not exist");
    }
    if (!inside(i.accesses, list.accesses.size()) || !inside(i.waits, list.waits.size())) {
      return bad("a range lies outside its side array");
    }
    const auto text = [&] { return describe(list, static_cast<std::int32_t>(index)); };
    for (std::int32_t w = i.waits.begin; w < i.waits.end; ++w) {
      const std::int32_t target = list.waits[static_cast<std::size_t>(w)].value;
      if (!inside(target, index)) {
        bad(text() + " waits for i" + number(target) + ", which is not an earlier instruction");
      }
    }
    if (!inside_or_none(i.stage, program_.stage_rank.size()) ||
        !inside_or_none(i.unit.value, program_.units.size()) ||
        !inside_or_none(i.parameter_group.value, program_.parameter_groups.size()) ||
        !inside_or_none(i.group.value, program_.communication_groups.size()) ||
        !inside_or_none(i.peer_stage, program_.stage_rank.size()) ||
        !inside_or_none(i.predicate.value, class_.buffers.size()) ||
        !inside_or_none(i.run_time_count.value, class_.buffers.size()) || i.micro_batch < -1 ||
        i.micro_batch >= class_.micro_batches || i.boundary < -1 || i.fuse < -1) {
      return bad(text() + " names a stage, unit, group, buffer or micro-batch that does not exist");
    }
    if (i.stage >= 0 && program_.stage_rank[static_cast<std::size_t>(i.stage)] != class_.pp) {
      return bad(text() + " is for stage " + number(i.stage) + ", which another rank holds");
    }
    if (i.group.valid() && !has_member(program_.communication_groups[i.group.index()])) {
      return bad(text() + " uses group " + program_.communication_groups[i.group.index()].name +
                 ", which this rank is not in");
    }
    for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
      if (!check_access(kind, list, index, a)) return;
    }
    if (!is_matched(i.kind)) return;
    if (is_collective(i.kind) && !i.group.valid()) return bad(text() + " has no group");
    if (!is_collective(i.kind) &&
        (i.peer_stage < 0 || i.stage < 0 || !i.unit.valid() || i.boundary < 0)) {
      return bad(text() + " lacks its stage, peer stage, unit or boundary");
    }
    if (i.accesses.size() == 0) return bad(text() + " moves nothing");
    // An all_gather may take its own shard from another buffer than the one it fills.
    BufferId moved, source;
    for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
      const Access& access = list.accesses[static_cast<std::size_t>(a)];
      const bool is_source =
          i.kind == InstructionKind::kAllGather && access.mode == AccessMode::kRead;
      BufferId& known = is_source ? source : moved;
      if (known.valid() && known != access.buffer)
        return bad(text() + " moves more than one buffer");
      known = access.buffer;
    }
    if (!moved.valid()) return bad(text() + " fills no buffer");
  }

  bool has_member(const CommunicationGroup& group) const {
    if (group.pp_coordinates.empty()) return true;
    for (std::int32_t pp : group.pp_coordinates) {
      if (pp == class_.pp) return true;
    }
    return false;
  }

  bool check_access(ProgramKind kind, const InstructionList& list, std::size_t index,
                    std::int32_t a) {
    const Access& access = list.accesses[static_cast<std::size_t>(a)];
    const auto bad = [&](const std::string& what) {
      report(kind, InstructionId(index),
             describe(list, static_cast<std::int32_t>(index)) + " " + what);
      return false;
    };
    if (!inside(access.buffer.value, class_.buffers.size())) {
      return bad("uses b" + number(access.buffer.value) + ", which does not exist");
    }
    if (access.mode > AccessMode::kUpdate)
      return bad("uses a buffer in a mode that does not exist");
    const Buffer& buffer = class_.buffers[access.buffer.index()];
    const std::int64_t slices =
        access.sharded ? slice_count(program_, list.instructions[index], buffer) : 1;
    if (slices == 0)
      return bad("takes a slice of b" + number(access.buffer.value) + ", which is whole");
    std::int64_t end = 0;
    if (access.offset < 0 || access.bytes < 0 ||
        __builtin_mul_overflow(slices, access.bytes, &end) ||
        __builtin_add_overflow(end, access.offset, &end) || end > buffer.bytes) {
      return bad("touches bytes " + number(access.offset) + " to " + number(end) + " of b" +
                 number(access.buffer.value) + ", which has " + number(buffer.bytes));
    }
    return true;
  }

  const Program& program_;
  const RankClass& class_;
  int rank_;
  Findings& findings_;
};

}  // namespace

void check_form(const Program& program, Findings& findings) {
  const auto bad = [&](const std::string& what) {
    findings.add(Violation::kMalformed, ProgramKind::kTrainStep, 0, {}, what);
  };
  const Mesh& mesh = program.mesh;
  for (int d : {mesh.pp, mesh.dp, mesh.cp, mesh.tp}) {
    if (d < 1) return bad("a degree of the mesh is below 1");
  }
  if (program.rank_class.size() != static_cast<std::size_t>(program.world_size())) {
    return bad("the mesh has " + number(program.world_size()) + " ranks, the class table " +
               number(static_cast<std::int64_t>(program.rank_class.size())));
  }
  for (std::int32_t pp : program.stage_rank) {
    if (!inside(pp, static_cast<std::size_t>(mesh.pp)))
      return bad("a stage is on no pipeline rank");
  }
  for (const CommunicationGroup& g : program.communication_groups) {
    for (std::int32_t pp : g.pp_coordinates) {
      if (!inside(pp, static_cast<std::size_t>(mesh.pp))) {
        return bad("group " + g.name + " has a pipeline coordinate outside the mesh");
      }
    }
  }
  if (program.units.size() != program.graph.units.size())
    return bad("units do not fit the model graph");
  for (const ProgramUnit& u : program.units) {
    bool sound = inside(u.unit_class, program.graph.classes.size()) &&
                 inside(u.layout, program.layouts.size()) &&
                 inside(u.stage, program.stage_rank.size()) &&
                 program.layouts[static_cast<std::size_t>(u.layout)].unit_class == u.unit_class;
    for (const BoundarySource& s : u.sources) {
      sound = sound && inside(s.unit.value, program.units.size()) && s.output >= 0;
    }
    for (ParameterGroupId g : u.groups) {
      sound = sound && inside(g.value, program.parameter_groups.size());
    }
    if (!sound)
      return bad("unit " + u.name + " has a class, stage, source or group that is missing");
  }
  std::vector<bool> seen(program.classes.size(), false);
  for (int rank = 0; rank < program.world_size() && !findings.full(); ++rank) {
    const std::int32_t index = program.rank_class[static_cast<std::size_t>(rank)];
    if (!inside(index, program.classes.size())) {
      return bad("rank " + number(rank) + " has class " + number(index) + ", which does not exist");
    }
    const RankClass& rank_class = program.classes[static_cast<std::size_t>(index)];
    if (rank_class.pp != mesh.coordinate(rank).pp()) {
      return bad("rank " + number(rank) + " has a class of another pipeline coordinate");
    }
    if (seen[static_cast<std::size_t>(index)]) continue;
    seen[static_cast<std::size_t>(index)] = true;
    ClassForm(program, rank_class, rank, findings).check();
  }
}

}  // namespace bayplan::verification
