// Parameter groups: every unit gets one flat group of decayed and one of undecayed tensors; each
// tied weight is a group of its own, owned by the first unit that has it.
#include <algorithm>
#include <string>

#include "planner/program/lowering.h"

namespace bayplan {
namespace {

/// Elements to which every tensor of a flat buffer is aligned: 256 B in fp32, and the same flat
/// layout for every dtype so that checkpoints and shards do not depend on the precision.
constexpr std::int64_t kElementAlignment = 64;

/// Name of a unit's parameter in checkpoints.
std::string model_wide_name(const ProgramUnit& unit, const UnitParameter& parameter) {
  return parameter.tied_to.empty() ? unit.name + "." + parameter.name : parameter.tied_to;
}

class GroupBuilder {
 public:
  explicit GroupBuilder(Lowering& lowering) : lowering_(lowering) {}

  ParameterRef place(UnitId unit_id, std::int32_t index) {
    const UnitParameter& parameter =
        lowering_.class_of(unit_id).parameters[static_cast<std::size_t>(index)];
    const ProgramUnit& unit = lowering_.program.units[unit_id.index()];
    if (!parameter.tied_to.empty()) {
      for (const auto& [name, ref] : tied_) {
        if (name == parameter.tied_to) return ref;
      }
    }
    const ParameterGroupId id = find_or_make(unit_id, parameter);
    ParameterGroup& group = lowering_.group(id);
    GroupParameter placed;
    placed.parameter = index;
    placed.name = model_wide_name(unit, parameter);
    placed.shape = parameter.shape;
    placed.offset = round_up(group.elements, kElementAlignment);
    placed.init = parameter.init;
    placed.init_std = parameter.init_std;
    placed.random_stream = next_random_stream_++;
    group.elements = placed.offset + parameter.shape.count();
    group.parameters.push_back(std::move(placed));
    const ParameterRef ref{id, static_cast<std::int32_t>(group.parameters.size()) - 1};
    if (!parameter.tied_to.empty()) tied_.emplace_back(parameter.tied_to, ref);
    return ref;
  }

 private:
  ParameterGroupId find_or_make(UnitId unit_id, const UnitParameter& parameter) {
    auto& groups = lowering_.program.parameter_groups;
    const bool tied = !parameter.tied_to.empty();
    for (std::size_t g = first_of_unit_; g < groups.size(); ++g) {
      const ParameterGroup& group = groups[g];
      if (group.owner == unit_id && !tied && !group.tied &&
          group.weight_decay == parameter.weight_decay && group.trainable == parameter.trainable) {
        return ParameterGroupId(g);
      }
    }
    const TrainingJob& job = lowering_.plan.job;
    const auto stage = static_cast<std::size_t>(lowering_.unit_stage[unit_id.index()]);
    ParameterGroup group;
    group.owner = unit_id;
    group.trainable = parameter.trainable;
    group.dtype = job.precision.compute;
    group.weight_decay = parameter.weight_decay;
    group.tied = tied;
    group.zero = lowering_.plan.stages[stage].zero;
    group.optimizer = job.optimizer;
    group.replicated_axes = static_cast<AxisSet>(axis_bit(Axis::kDp) | axis_bit(Axis::kCp));
    group.shard_axes = group.zero >= 1 ? group.replicated_axes : AxisSet{0};
    groups.push_back(std::move(group));
    return ParameterGroupId(groups.size() - 1);
  }

 public:
  void start_unit() { first_of_unit_ = lowering_.program.parameter_groups.size(); }

 private:
  Lowering& lowering_;
  std::size_t first_of_unit_ = 0;
  std::uint32_t next_random_stream_ = 0;
  std::vector<std::pair<std::string, ParameterRef>> tied_;
};

}  // namespace

void pass_parameters(Lowering& lowering) {
  Program& program = lowering.program;
  GroupBuilder builder(lowering);
  for (std::size_t u = 0; u < program.units.size(); ++u) {
    const UnitId id(u);
    builder.start_unit();
    ProgramUnit& unit = program.units[u];
    for (std::size_t p = 0; p < lowering.class_of(id).parameters.size(); ++p) {
      const ParameterRef ref = builder.place(id, static_cast<std::int32_t>(p));
      unit.parameters.push_back(ref);
      if (std::find(unit.groups.begin(), unit.groups.end(), ref.group) == unit.groups.end()) {
        unit.groups.push_back(ref.group);
      }
      std::vector<std::int32_t>& holders = lowering.group(ref.group).pp_coordinates;
      const std::int32_t pp = program.stage_rank[static_cast<std::size_t>(unit.stage)];
      if (std::find(holders.begin(), holders.end(), pp) == holders.end()) holders.push_back(pp);
    }
  }
  const std::int64_t replicas = program.mesh.dp * program.mesh.cp;
  for (ParameterGroup& group : program.parameter_groups) {
    std::sort(group.pp_coordinates.begin(), group.pp_coordinates.end());
    group.padded_elements = round_up(group.elements, replicas * kElementAlignment);
    group.shard_elements =
        group.shard_axes != 0 ? group.padded_elements / replicas : group.padded_elements;
    const Plan& plan = lowering.plan;
    const std::int64_t bytes = group.elements * dtype_size(group.dtype);
    group.state_tier = plan.offload.optimizer && group.trainable ? Tier::kHost : Tier::kDevice;
    group.gathered = group.zero == 3 && replicas > 1 && bytes > plan.persistence_threshold.value;
    group.reduced_each_micro_batch =
        group.trainable && replicas > 1 && plan.grad_reduce == GradReduce::kMicroBatch;
    group.parameter_elements = group.gathered ? group.shard_elements : group.padded_elements;
    group.gradient_elements = group.zero >= 2 && group.reduced_each_micro_batch
                                  ? group.shard_elements
                                  : group.padded_elements;
    if (group.pp_coordinates.size() > 1 && !lowering.embedding.valid()) {
      program.communication_groups.push_back(
          {"embedding", axis_bit(Axis::kPp), group.pp_coordinates});
      lowering.embedding = CommunicationGroupId(program.communication_groups.size() - 1);
    }
  }
  for (ClassDraft& c : lowering.classes) {
    for (std::size_t g = 0; g < program.parameter_groups.size(); ++g) {
      const auto& holders = program.parameter_groups[g].pp_coordinates;
      if (std::find(holders.begin(), holders.end(), c.result.pp) != holders.end()) {
        c.groups.push_back(ParameterGroupId(g));
      }
    }
  }
}

}  // namespace bayplan
