#include "models/localhost.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace bayplan {
namespace {

/// First word of a small file of the kernel; "" when it cannot be read.
std::string first_word(const char* path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

std::int64_t container_memory_limit() {
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const std::string word = first_word(path);
    // "max", and the kernel's 2^63 rounded to pages, both mean none.
    if (word.empty() || word == "max") continue;
    const long long limit = std::atoll(word.c_str());
    if (limit > 0 && limit < (1LL << 60)) return limit;
  }
  return INT64_MAX;
}

/// Cores that a container's CPU quota allows, rounded up; large when there is no quota.
int container_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0.0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0.0) return INT32_MAX;
  const double cores = std::ceil(std::atof(quota.c_str()) / period);
  return cores >= 1.0 && cores < 1e6 ? static_cast<int>(cores) : INT32_MAX;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = ::sched_getaffinity(0, sizeof set, &set) == 0
                          ? CPU_COUNT(&set)
                          : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, std::min(allowed, container_cores()));
}

}  // namespace

Result<Machine> describe_machine() {
  Machine machine;
  machine.cores = usable_cores();
  const std::int64_t physical = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  machine.memory = Bytes(std::min(physical, container_memory_limit()));
  if (machine.memory.value <= 0) {
    return Error{"unknown-machine", "the system does not say how much memory it has", "localhost",
                 "describe the machine in a cluster.json"};
  }
  std::error_code failed;
  const auto space = std::filesystem::space(std::filesystem::temp_directory_path(failed), failed);
  if (!failed) {
    const auto gib = static_cast<std::int64_t>(space.available >> 30);
    machine.free_disk = Bytes(gib << 30);
  }
  return machine;
}

NodeGroup localhost_group(const Machine& machine, const HardwarePreset& preset, int nodes,
                          int ranks) {
  NodeGroup group = preset.group;
  group.name = "localhost";
  group.nodes = nodes;
  group.devices_per_node = ranks;
  group.cores = std::max(1, machine.cores / nodes);
  group.device.name = "cpu";
  const std::int64_t per_node = machine.memory.value / nodes;
  group.device.memory = Bytes(std::max<std::int64_t>(1, per_node / 4 * 3 / ranks));
  group.host_memory = Bytes(per_node / 4);
  group.nvme = machine.free_disk;
  // A rank has at least a core's worth of arithmetic while it runs alone; that ranks share cores is
  // what the simulator's node model says.
  const double share = std::max(1.0, static_cast<double>(group.cores) / ranks) / preset.group.cores;
  for (auto& [dtype, rate] : group.device.peak) rate = rate * share;
  group.device.memory_bandwidth =
      preset.group.device.memory_bandwidth *
      std::min(1.0, static_cast<double>(group.cores) / preset.group.cores);
  return group;
}

}  // namespace bayplan
