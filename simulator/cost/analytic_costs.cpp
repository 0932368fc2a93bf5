#include <algorithm>
#include <vector>

#include "simulator/cost/communication_cost.h"
#include "simulator/cost/cost_model.h"
#include "simulator/cost/instruction_cost.h"

namespace bayplan::sim {
namespace {

// Half-widths of the prediction interval. Specification: the spread of public training runs
// around a roofline at typical efficiencies; calibrated: run-to-run spread on shared machines;
// default: no measurement of such a machine at all.
constexpr CostUncertainty kFromSpecification{0.25, 0.40, Provenance::kSpecification};
constexpr CostUncertainty kFromCalibration{0.15, 0.30, Provenance::kCalibrated};
constexpr CostUncertainty kFromDefaults{0.50, 0.50, Provenance::kDefault};

bool is_cpu(const NodeGroup& group) { return group.device.device_class == DeviceClass::kCpu; }

CpuNodeModel node_model(const NodeGroup& group, const Calibration* calibration) {
  CpuNodeModel node;
  if (!is_cpu(group) || group.cores <= 0) return node;
  node.cores = group.cores;
  if (calibration == nullptr) return node;
  node.crowding = calibration->crowding;
  node.oversubscription = calibration->oversubscription;
  return node;
}

/// Whether the ranks are threads of one calibrated node.
bool share_memory(const Cluster& cluster, std::span<const int> ranks) {
  const DevicePlace first = place_of(cluster, ranks.front());
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    const DevicePlace place = place_of(cluster, rank);
    return place.node == first.node &&
           is_cpu(cluster.groups[static_cast<std::size_t>(place.group)]);
  });
}

/// One InstructionCosts per node group, and which of them a rank class runs on.
struct ComputeModel {
  std::vector<InstructionCosts> groups;
  std::vector<std::size_t> group_of_class;
};

std::shared_ptr<const ComputeModel> compute_model(const Program& program, const Cluster& cluster,
                                                  const Calibration* calibration) {
  auto model = std::make_shared<ComputeModel>();
  for (const NodeGroup& group : cluster.groups) {
    const BytesPerSecond host(group.host_memory_bandwidth.value / group.devices_per_node);
    model->groups.emplace_back(program, DeviceCosts{&group.device, group.host_link, host,
                                                    is_cpu(group) ? calibration : nullptr});
  }
  model->group_of_class.resize(program.classes.size(), 0);
  for (int rank = program.world_size() - 1; rank >= 0; --rank) {
    const auto c = static_cast<std::size_t>(program.rank_class[static_cast<std::size_t>(rank)]);
    model->group_of_class[c] = static_cast<std::size_t>(place_of(cluster, rank).group);
  }
  return model;
}

}  // namespace

CostModel analytic_costs(const Program& program, const Cluster& cluster,
                         std::shared_ptr<const Calibration> calibration) {
  CostModel model;
  const auto compute = compute_model(program, cluster, calibration.get());
  model.compute = [compute, calibration](int rank_class, const InstructionList& list,
                                         const Instruction& instruction) {
    const std::size_t group = compute->group_of_class[static_cast<std::size_t>(rank_class)];
    return compute->groups[group](rank_class, list, instruction);
  };
  StreamRates rates;
  if (calibration != nullptr) rates = stream_rates(*calibration, program.job.precision.gradient);
  model.communication = [&cluster, calibration, rates](const CommunicationCall& call) {
    if (calibration != nullptr && share_memory(cluster, call.ranks)) {
      return shared_memory_cost(*calibration, rates, call);
    }
    return link_cost(slowest_link(cluster, call.ranks), call);
  };
  bool any_cpu = false;
  for (const NodeGroup& group : cluster.groups) {
    model.nodes.push_back(node_model(group, calibration.get()));
    any_cpu = any_cpu || is_cpu(group);
    if (!is_cpu(group)) {
      model.communication_issue =
          std::max(model.communication_issue, to_picoseconds(group.device.launch));
    }
  }
  model.uncertainty = !any_cpu                 ? kFromSpecification
                      : calibration != nullptr ? kFromCalibration
                                               : kFromDefaults;
  return model;
}

}  // namespace bayplan::sim
