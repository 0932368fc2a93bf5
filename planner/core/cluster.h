// Cluster: the hardware, which need not exist. Numbers come from models/hardware/*.json,
// a cluster.json, or a calibration of this machine; each says which (Provenance).
// Not for: topology search (simulator/network).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "planner/core/dtype.h"
#include "planner/core/units.h"

namespace bayplan {

enum class Provenance : std::uint8_t { kSpecification, kCalibrated, kMeasured, kDefault };
constexpr const char* provenance_name(Provenance p) {
  switch (p) {
    case Provenance::kSpecification:
      return "specification";
    case Provenance::kCalibrated:
      return "calibrated";
    case Provenance::kMeasured:
      return "measured";
    case Provenance::kDefault:
      return "default";
  }
  return "default";
}

/// α–β cost of one message: latency + bytes / bandwidth.
struct Link {
  Seconds latency;
  BytesPerSecond bandwidth;
  Provenance provenance = Provenance::kSpecification;
};

enum class DeviceClass : std::uint8_t { kCpu, kGpu };

struct DeviceSpec {
  std::string name;
  DeviceClass device_class = DeviceClass::kGpu;
  Bytes memory;   // usable by a program, after what the driver takes
  Bytes context;  // taken by the runtime before the first tensor (CUDA context); 0 on CPU
  std::map<DType, FlopPerSecond> peak;  // dense matrix rate per compute dtype
  BytesPerSecond memory_bandwidth;
  /// Fractions of peak that large GEMMs and streaming kernels reach, and the launch floor.
  double gemm_efficiency = 0.0;
  double attention_efficiency = 0.0;
  double memory_efficiency = 0.0;
  Seconds launch;
  double price_per_hour = 0.0;  // USD, list; 0 = unknown
  double power_watts = 0.0;
  std::string source;  // where the numbers are from, with date
};

struct NodeGroup {
  std::string name;
  int nodes = 1;
  int devices_per_node = 1;
  DeviceSpec device;
  Bytes host_memory;
  Bytes nvme;
  BytesPerSecond nvme_read;
  BytesPerSecond nvme_write;
  Link intra_node;
  Link host_link;  // device <-> host memory
  /// GPU nodes: rate at which the host's cores stream through its memory, of the whole node.
  BytesPerSecond host_memory_bandwidth;
  /// CPU nodes only: cores shared by the node's ranks. 0 on GPU nodes.
  int cores = 0;
};

struct Cluster {
  std::string name;  // as given by the user
  std::vector<NodeGroup> groups;
  Link inter_node;          // per device
  std::string calibration;  // file that the CPU numbers came from, "" = none

  int device_count() const {
    int n = 0;
    for (const NodeGroup& g : groups) n += g.nodes * g.devices_per_node;
    return n;
  }
};

/// Where a rank sits: node group, global node number and device within the node. Ranks fill
/// nodes in order.
struct DevicePlace {
  int group = 0;
  int node = 0;
  int device = 0;
};
DevicePlace place_of(const Cluster& cluster, int rank);

}  // namespace bayplan
