// --set PATH=VALUE: changes any field of a cluster by its JSON path. Not for: fields of jobs or
// plans, which have options and files of their own.
#pragma once

#include <span>
#include <string>

#include "planner/core/cluster.h"
#include "planner/core/result.h"

namespace bayplan {

/// Applies the settings in order. PATH is the path in the cluster's JSON with '.', '/' or '_'
/// between names; without "groups.N." it changes every group, and "device." may be left out:
/// host_memory=256GiB, inter_node_bandwidth=25Gbps, groups.1.device.memory=30GiB,
/// nvme=2TB@3GB/s (size, and both rates). An unknown path is an error that names the nearest.
Result<Cluster> apply_settings(const Cluster& cluster, std::span<const std::string> settings);

}  // namespace bayplan
