#include "planner/core/cluster.h"

#include "planner/core/check.h"

namespace bayplan {

DevicePlace place_of(const Cluster& cluster, int rank) {
  int left = rank;
  int first_node = 0;
  for (std::size_t g = 0; g < cluster.groups.size(); ++g) {
    const NodeGroup& group = cluster.groups[g];
    const int devices = group.nodes * group.devices_per_node;
    if (left < devices) {
      return {static_cast<int>(g), first_node + left / group.devices_per_node,
              left % group.devices_per_node};
    }
    left -= devices;
    first_node += group.nodes;
  }
  BAYPLAN_CHECK(false, "rank outside the cluster");
  return {};
}

}  // namespace bayplan
