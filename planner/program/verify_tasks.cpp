// The instructions of a job, as a sorted list that is compared with what is there.
#include <algorithm>
#include <compare>

#include "planner/program/verify_job.h"

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

}  // namespace

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

}  // namespace bayplan::verification
