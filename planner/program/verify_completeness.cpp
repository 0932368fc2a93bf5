// Completeness: the instructions that the job needs are there, each once, and the values they pass
// on by persistent buffers or accumulate flow in the one right order: contributions, reduction,
// tied copies, norm, optimizer, gather. (Between buffers that one instruction writes, order follows
// from "read after written" in verify_hazards.cpp.)
#include <algorithm>
#include <compare>

#include "planner/program/verify_internal.h"

namespace bayplan::verification {
namespace {

/// What tells the instructions of a job apart.
struct Task {
  InstructionKind kind{};
  Purpose purpose = Purpose::kNone;
  std::int32_t unit = -1;
  std::int32_t boundary = -1;
  std::int32_t peer_stage = -1;
  std::int32_t stage = -1;
  std::int32_t micro_batch = -1;
  std::int32_t group = -1;  // parameter group
  friend auto operator<=>(const Task&, const Task&) = default;
};

Task task_of(const Instruction& i) {
  return {i.kind,       i.purpose, i.unit.value,  i.boundary,
          i.peer_stage, i.stage,   i.micro_batch, i.parameter_group.value};
}

std::string task_text(const Task& t) {
  Instruction i;
  i.kind = t.kind;
  i.purpose = t.purpose;
  i.unit = UnitId(t.unit);
  i.boundary = t.boundary;
  i.peer_stage = t.peer_stage;
  i.stage = t.stage;
  i.micro_batch = t.micro_batch;
  i.parameter_group = ParameterGroupId(t.group);
  InstructionList list;
  list.instructions.push_back(i);
  return describe(list, 0).substr(11);  // without "i0 compute "
}

/// What a class knows of its job.
struct Job {
  explicit Job(const ClassProgram& program) : p(program) {
    const std::vector<ProgramUnit>& all = p.program.units;
    std::vector<bool> held(p.program.parameter_groups.size(), false);
    for (std::size_t u = 0; u < all.size(); ++u) {
      if (!here(all[u].stage)) continue;
      units.push_back(UnitId(u));
      has_loss |= class_of(UnitId(u)).loss >= 0;
      for (ParameterGroupId g : all[u].groups) held[g.index()] = true;
    }
    for (std::size_t g = 0; g < held.size(); ++g) {
      if (held[g]) groups.push_back(ParameterGroupId(g));
    }
  }
  bool here(std::int32_t stage) const {
    return p.program.stage_rank[static_cast<std::size_t>(stage)] == p.rank_class.pp;
  }
  std::int32_t stage_of(UnitId u) const { return p.program.units[u.index()].stage; }
  const UnitClass& class_of(UnitId u) const {
    return p.program.graph.classes[static_cast<std::size_t>(p.program.units[u.index()].unit_class)];
  }
  const ParameterGroup& group(ParameterGroupId g) const {
    return p.program.parameter_groups[g.index()];
  }
  bool reduced(ParameterGroupId g) const {
    return degree(p.program.mesh, group(g).replicated_axes) > 1;
  }
  bool sharded(ParameterGroupId g) const { return degree(p.program.mesh, group(g).shard_axes) > 1; }
  bool has_master() const { return p.program.job.precision.has_master; }
  /// How often a ZeRO-3 group is gathered and which activations are offloaded is the plan's choice;
  /// that users find them follows from "read after written".
  bool is_choice(const Instruction& i) const {
    const bool computes = p.kind == ProgramKind::kTrainStep || p.kind == ProgramKind::kEvalStep;
    if (i.purpose == Purpose::kActivations) return computes;
    return computes && i.kind == InstructionKind::kAllGather && i.parameter_group.valid() &&
           group(i.parameter_group).gathered;
  }
  bool tied(ParameterGroupId g) const { return group(g).pp_coordinates.size() > 1; }
  bool first_copy(ParameterGroupId g) const {
    return !group(g).pp_coordinates.empty() && group(g).pp_coordinates.front() == p.rank_class.pp;
  }

  const ClassProgram& p;
  std::vector<UnitId> units;             // held, model order
  std::vector<ParameterGroupId> groups;  // held, ascending
  bool has_loss = false;
};

/// The tasks of one class in one sub-program.
class TaskList {
 public:
  explicit TaskList(const Job& job) : job_(job) {
    switch (job.p.kind) {
      case ProgramKind::kLoad:
        for (ParameterGroupId g : job.groups)
          add_group(InstructionKind::kInitialize, Purpose::kNone, g);
        break;
      case ProgramKind::kTrainStep:
        add_micro_batches(true);
        add_update();
        break;
      case ProgramKind::kEvalStep:
        add_micro_batches(false);
        if (!job.has_loss) add_group(InstructionKind::kGradientNorm, Purpose::kLoss, {});
        if (world() > 1) add_group(InstructionKind::kAllReduce, Purpose::kLoss, {});
        break;
      case ProgramKind::kSave:
        for (ParameterGroupId g : job.groups) {
          if (job.first_copy(g)) add_group(InstructionKind::kOffload, Purpose::kCheckpoint, g);
        }
        break;
    }
    add_group(InstructionKind::kEndStep, Purpose::kNone, {});
    std::sort(tasks_.begin(), tasks_.end());
  }
  const std::vector<Task>& tasks() const { return tasks_; }

 private:
  int world() const { return job_.p.program.world_size(); }

  void add_group(InstructionKind kind, Purpose purpose, ParameterGroupId g,
                 std::int64_t micro_batch = -1) {
    Task t;
    t.micro_batch = static_cast<std::int32_t>(micro_batch);
    t.kind = kind;
    t.purpose = purpose;
    t.group = g.value;
    tasks_.push_back(t);
  }

  void add_update() {
    for (ParameterGroupId g : job_.groups) {
      if (!job_.group(g).trainable) continue;
      const bool sharded = job_.sharded(g);
      const InstructionKind reduction =
          sharded ? InstructionKind::kReduceScatter : InstructionKind::kAllReduce;
      if (job_.group(g).reduced_each_micro_batch) {
        for (std::int64_t m = 0; m < job_.p.rank_class.micro_batches; ++m) {
          add_group(reduction, Purpose::kGrads, g, m);
          add_group(InstructionKind::kAccumulate, Purpose::kGrads, g, m);
        }
      } else if (job_.reduced(g)) {
        add_group(reduction, Purpose::kGrads, g);
      }
      if (job_.tied(g)) add_group(InstructionKind::kAllReduce, Purpose::kTiedGrads, g);
      add_group(InstructionKind::kOptimizerStep, Purpose::kNone, g);
      if (job_.group(g).state_tier == Tier::kHost) {
        add_group(InstructionKind::kOffload, Purpose::kGrads, g);
        if (!job_.has_master()) add_group(InstructionKind::kOffload, Purpose::kParams, g);
        add_group(InstructionKind::kPrefetch, Purpose::kParams, g);
      }
      if (sharded && !job_.group(g).gathered)
        add_group(InstructionKind::kAllGather, Purpose::kParams, g);
    }
    add_group(InstructionKind::kGradientNorm, Purpose::kNorm, {});
    if (world() > 1) add_group(InstructionKind::kAllReduce, Purpose::kNorm, {});
  }

  void add_micro_batches(bool train) {
    std::vector<Task> one;
    std::vector<std::int32_t> loading;  // stages
    for (UnitId u : job_.units) {
      add_forward(u, one);
      const std::int32_t stage = job_.stage_of(u);
      if (!job_.class_of(u).external_inputs.empty() &&
          std::find(loading.begin(), loading.end(), stage) == loading.end()) {
        loading.push_back(stage);
        Task load;
        load.kind = InstructionKind::kLoadMicroBatch;
        load.stage = stage;
        one.push_back(load);
      }
    }
    add_messages(train, one);
    std::sort(one.begin(), one.end());
    one.erase(std::unique(one.begin(), one.end()), one.end());
    tasks_.reserve(one.size() * static_cast<std::size_t>(job_.p.rank_class.micro_batches) + 64);
    for (std::int64_t m = 0; m < job_.p.rank_class.micro_batches; ++m) {
      for (Task& t : one) t.micro_batch = static_cast<std::int32_t>(m);
      tasks_.insert(tasks_.end(), one.begin(), one.end());
    }
    if (train) add_backwards();
  }

  void add_forward(UnitId u, std::vector<Task>& out) const {
    Task t;
    t.unit = u.value;
    t.stage = job_.stage_of(u);
    t.kind = InstructionKind::kForward;
    out.push_back(t);
  }

  /// Each unit's backward of each micro-batch: whole, or in two parts where a part is there.
  void add_backwards() {
    const std::int64_t micro_batches = job_.p.rank_class.micro_batches;
    std::vector<bool> split(job_.p.program.units.size() * static_cast<std::size_t>(micro_batches));
    const auto at = [&](UnitId u, std::int64_t m) {
      return u.index() * static_cast<std::size_t>(micro_batches) + static_cast<std::size_t>(m);
    };
    for (const Instruction& i : job_.p.list.instructions) {
      const bool part =
          i.kind == InstructionKind::kBackwardInput || i.kind == InstructionKind::kBackwardWeight;
      if (part && i.unit.valid() && i.micro_batch >= 0 && i.micro_batch < micro_batches)
        split[at(i.unit, i.micro_batch)] = true;
    }
    for (UnitId u : job_.units) {
      const UnitLayout& layout = job_.p.program.layout_of(u);
      Task t;
      t.unit = u.value;
      t.stage = job_.stage_of(u);
      for (std::int64_t m = 0; m < micro_batches; ++m) {
        t.micro_batch = static_cast<std::int32_t>(m);
        if (recomputes(layout)) {
          t.kind = InstructionKind::kRecompute;
          tasks_.push_back(t);
        }
        t.kind = InstructionKind::kBackward;
        if (split[at(u, m)]) {
          t.kind = InstructionKind::kBackwardInput;
          if (layout.has_backward_input) tasks_.push_back(t);
          t.kind = InstructionKind::kBackwardWeight;
        }
        tasks_.push_back(t);
      }
    }
  }

  /// A tensor that crosses pipeline ranks is sent once to every stage that reads it, and its
  /// gradient comes back.
  void add_messages(bool train, std::vector<Task>& out) const {
    const std::vector<ProgramUnit>& units = job_.p.program.units;
    for (const ProgramUnit& reader : units) {
      for (const BoundarySource& s : reader.sources) {
        const bool reads_here = job_.here(reader.stage);
        const bool written_here = job_.here(job_.stage_of(s.unit));
        if (reads_here == written_here) continue;
        Task t;
        t.unit = s.unit.value;
        t.boundary = s.output;
        t.stage = reads_here ? reader.stage : job_.stage_of(s.unit);
        t.peer_stage = reads_here ? job_.stage_of(s.unit) : reader.stage;
        t.kind = reads_here ? InstructionKind::kRecvActivation : InstructionKind::kSendActivation;
        out.push_back(t);
        if (!train) continue;
        t.kind = reads_here ? InstructionKind::kSendGradient : InstructionKind::kRecvGradient;
        out.push_back(t);
      }
    }
  }

  const Job& job_;
  std::vector<Task> tasks_;
};

/// Compares what is there with what has to be.
void check_tasks(const Job& job, Findings& findings) {
  const ClassProgram& p = job.p;
  const TaskList expected(job);
  std::vector<std::pair<Task, std::int32_t>> found;
  found.reserve(static_cast<std::size_t>(p.size()));
  for (std::int32_t i = 0; i < p.size(); ++i) {
    if (p.at(i).kind != InstructionKind::kRelease && !job.is_choice(p.at(i)))
      found.emplace_back(task_of(p.at(i)), i);
  }
  std::sort(found.begin(), found.end());
  auto f = found.begin();
  for (const Task& task : expected.tasks()) {
    for (; f != found.end() && f->first < task; ++f) {
      findings.add(Violation::kMissing, p.kind, p.rank, InstructionId(f->second),
                   describe(p.list, f->second) + " is there twice, or is no part of the job");
    }
    if (f != found.end() && f->first == task) {
      ++f;
    } else {
      findings.add(Violation::kMissing, p.kind, p.rank, {},
                   "the program lacks: " + task_text(task));
    }
  }
  for (; f != found.end(); ++f) {
    findings.add(Violation::kMissing, p.kind, p.rank, InstructionId(f->second),
                 describe(p.list, f->second) + " is there twice, or is no part of the job");
  }
}

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

void check_end(const ClassProgram& p, const HappensBefore& order, Findings& findings) {
  const std::int32_t last = p.size() - 1;
  if (last < 0) return;  // lacks its end_step already
  if (p.at(last).kind != InstructionKind::kEndStep) {
    findings.add(Violation::kMissing, p.kind, p.rank, InstructionId(last),
                 describe(p.list, last) + " comes behind end_step, or in place of it");
    return;
  }
  for (std::int32_t i = 0; i < last; ++i) {
    if (order.before(i, last)) continue;
    findings.add(Violation::kRace, p.kind, p.rank, InstructionId(last),
                 "end_step does not wait for " + describe(p.list, i));
    return;
  }
}

}  // namespace

void check_batch(const Program& program, Findings& findings) {
  const Mesh& mesh = program.mesh;
  for (int pp = 0; pp < mesh.pp; ++pp) {
    std::int64_t samples = 0;
    for (int dp = 0; dp < mesh.dp; ++dp) {
      samples +=
          program.class_of(mesh.rank_of({{pp, dp, 0, 0}})).micro_batches * program.job.micro_batch;
    }
    if (samples == program.job.global_batch) continue;
    findings.add(Violation::kMissing, ProgramKind::kTrainStep, mesh.rank_of({{pp, 0, 0, 0}}), {},
                 "the replicas of pipeline rank " + std::to_string(pp) + " process " +
                     std::to_string(samples) + " samples, the global batch is " +
                     std::to_string(program.job.global_batch));
  }
}

void check_completeness(const ClassProgram& p, const HappensBefore& order, Findings& findings) {
  const bool computes = p.kind == ProgramKind::kTrainStep || p.kind == ProgramKind::kEvalStep;
  // Also bounds what the checks below allocate.
  if (computes && p.rank_class.micro_batches > p.size()) {
    return findings.add(Violation::kMissing, p.kind, p.rank, {},
                        "the program has fewer instructions than micro-batches");
  }
  const Job job(p);
  check_tasks(job, findings);
  Flow(job, findings).check();
  check_end(p, order, findings);
}

}  // namespace bayplan::verification
