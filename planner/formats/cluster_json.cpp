#include "planner/formats/cluster_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace bayplan {
namespace {

using nlohmann::ordered_json;

const std::vector<std::string> kProvenances = {"specification", "calibrated", "measured",
                                               "default"};
const std::vector<std::string> kDeviceClasses = {"cpu", "gpu"};
constexpr const char* kClusterSchema = "bayplan.cluster/1";

auto read_bytes(Zero zero) {
  return [zero](const JsonCursor& c) { return c.bytes(zero); };
}
auto read_rate(Zero zero) {
  return [zero](const JsonCursor& c) { return c.rate(zero); };
}
auto read_duration() {
  return [](const JsonCursor& c) { return c.duration(Zero::kAllowed); };
}
auto read_text() {
  return [](const JsonCursor& c) { return c.string(); };
}
auto read_fraction() {
  return [](const JsonCursor& c) { return c.number(0.0, 1.0); };
}
auto read_count(std::int64_t least) {
  return [least](const JsonCursor& c) { return c.integer(least, kMostDevices); };
}

Result<Provenance> read_provenance(const JsonCursor& at) {
  BAYPLAN_TRY(text, at.one_of(kProvenances));
  for (const Provenance p :
       {Provenance::kCalibrated, Provenance::kMeasured, Provenance::kDefault}) {
    if (text == provenance_name(p)) return p;
  }
  return Provenance::kSpecification;
}

Result<Link> read_link(const JsonCursor& at) {
  Link link;
  ObjectReader r(at);
  r.required("latency", link.latency, read_duration());
  r.required("bandwidth", link.bandwidth, read_rate(Zero::kRefused));
  r.optional("provenance", link.provenance, read_provenance);
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  return link;
}

Result<std::map<DType, FlopPerSecond>> read_peak(const JsonCursor& at) {
  std::map<DType, FlopPerSecond> peak;
  ObjectReader r(at);
  for (std::size_t i = 0; i < kDTypeNames.size(); ++i) {
    FlopPerSecond rate;
    r.optional(kDTypeNames[i], rate, [](const JsonCursor& c) { return c.flop_rate(); });
    if (rate.value > 0.0) peak[static_cast<DType>(i)] = rate;
  }
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  if (peak.empty())
    return at.error("missing-field", "no rate is given", "add one, as \"fp32\": \"19.5TFLOP/s\"");
  return peak;
}

Result<DeviceSpec> read_device(const JsonCursor& at) {
  DeviceSpec d;
  ObjectReader r(at);
  std::string device_class = "gpu";
  r.required("name", d.name, read_text());
  r.required("class", device_class, [](const JsonCursor& c) { return c.one_of(kDeviceClasses); });
  r.required("memory", d.memory, read_bytes(Zero::kRefused));
  r.optional("context", d.context, read_bytes(Zero::kAllowed));
  r.required("peak", d.peak, read_peak);
  r.required("memory_bandwidth", d.memory_bandwidth, read_rate(Zero::kRefused));
  r.required("gemm_efficiency", d.gemm_efficiency, read_fraction());
  r.required("attention_efficiency", d.attention_efficiency, read_fraction());
  r.required("memory_efficiency", d.memory_efficiency, read_fraction());
  r.optional("launch", d.launch, read_duration());
  r.optional("price_per_hour", d.price_per_hour, [](const JsonCursor& c) { return c.price(); });
  r.optional("power", d.power_watts, [](const JsonCursor& c) { return c.watts(); });
  r.optional("source", d.source, read_text());
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  for (const double efficiency : {d.gemm_efficiency, d.attention_efficiency, d.memory_efficiency}) {
    if (efficiency <= 0.0)
      return at.error("out-of-range", "an efficiency is zero", "write a fraction in (0, 1]");
  }
  d.device_class = device_class == "cpu" ? DeviceClass::kCpu : DeviceClass::kGpu;
  return d;
}

/// Fields of a node, without its device.
void read_node_fields(ObjectReader& r, NodeGroup& group) {
  r.optional("devices_per_node", group.devices_per_node, read_count(1));
  r.optional("host_memory", group.host_memory, read_bytes(Zero::kAllowed));
  r.optional("nvme", group.nvme, read_bytes(Zero::kAllowed));
  r.optional("nvme_read", group.nvme_read, read_rate(Zero::kAllowed));
  r.optional("nvme_write", group.nvme_write, read_rate(Zero::kAllowed));
  r.optional("intra_node", group.intra_node, read_link);
  r.optional("host_link", group.host_link, read_link);
  r.optional("host_memory_bandwidth", group.host_memory_bandwidth, read_rate(Zero::kAllowed));
  r.optional("cores", group.cores, read_count(0));
}

/// `network`: set to the preset's network when the device is a preset's name.
Result<NodeGroup> read_group(const JsonCursor& at, const HardwareLookup& presets,
                             std::optional<Link>& network) {
  NodeGroup group;
  ObjectReader r(at);
  r.required("device", group.device, [&](const JsonCursor& c) -> Result<DeviceSpec> {
    if (!c.is_string()) return read_device(c);
    BAYPLAN_TRY(name, c.string());
    BAYPLAN_TRY(preset, presets(name, c.where()));
    group = preset.group;
    network = preset.inter_node;
    return DeviceSpec(preset.group.device);
  });
  if (group.name.empty()) group.name = group.device.name;
  r.optional("name", group.name, read_text());
  r.optional("nodes", group.nodes, read_count(1));
  read_node_fields(r, group);
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  if (group.devices_per_node > 1 && group.intra_node.bandwidth.value <= 0.0) {
    return at.error("missing-field", "field 'intra_node' is missing and a node has several devices",
                    "add {\"latency\": …, \"bandwidth\": …}");
  }
  return group;
}

ordered_json write_link(const Link& link) {
  return {{"latency", exact_duration(link.latency)},
          {"bandwidth", exact_rate(link.bandwidth)},
          {"provenance", provenance_name(link.provenance)}};
}

ordered_json write_device(const DeviceSpec& d) {
  ordered_json peak = ordered_json::object();
  for (const auto& [dtype, rate] : d.peak)
    peak[std::string(dtype_name(dtype))] = exact_flop_rate(rate);
  return {{"name", d.name},
          {"class", d.device_class == DeviceClass::kCpu ? "cpu" : "gpu"},
          {"memory", exact_bytes(d.memory)},
          {"context", exact_bytes(d.context)},
          {"peak", peak},
          {"memory_bandwidth", exact_rate(d.memory_bandwidth)},
          {"gemm_efficiency", d.gemm_efficiency},
          {"attention_efficiency", d.attention_efficiency},
          {"memory_efficiency", d.memory_efficiency},
          {"launch", exact_duration(d.launch)},
          {"price_per_hour", exact_price(d.price_per_hour)},
          {"power", exact_watts(d.power_watts)},
          {"source", d.source}};
}

}  // namespace

Status check_cluster(const Cluster& cluster, const std::string& where) {
  if (cluster.groups.empty())
    return Error{"out-of-range", "the cluster has no devices", where, "add a group"};
  std::int64_t devices = 0;
  std::int64_t nodes = 0;
  for (const NodeGroup& group : cluster.groups) {
    devices += std::int64_t{group.nodes} * group.devices_per_node;
    nodes += group.nodes;
    if (group.device.device_class != cluster.groups.front().device.device_class) {
      return Error{"unsupported", "CPU and GPU devices in one cluster are not modelled", where,
                   "use one kind of device"};
    }
  }
  if (devices > kMostDevices) {
    return Error{"out-of-range", fmt::format("{} devices are more than {}", devices, kMostDevices),
                 where, "write a smaller cluster"};
  }
  if (nodes > 1 && cluster.inter_node.bandwidth.value <= 0.0) {
    return Error{"missing-field", "field 'inter_node' is missing and there are several nodes",
                 where, "add the network between nodes"};
  }
  return {};
}

Result<Cluster> read_cluster(const JsonCursor& at, const HardwareLookup& presets) {
  Cluster cluster;
  std::string schema = kClusterSchema;
  std::optional<Link> network;
  ObjectReader r(at);
  r.optional("schema", schema, [](const JsonCursor& c) { return c.one_of({kClusterSchema}); });
  r.optional("name", cluster.name, read_text());
  r.required("groups", cluster.groups, [&](const JsonCursor& c) -> Result<std::vector<NodeGroup>> {
    BAYPLAN_TRY(elements, c.elements());
    std::vector<NodeGroup> groups;
    for (const JsonCursor& element : elements) {
      std::optional<Link> group_network;
      BAYPLAN_TRY(group, read_group(element, presets, group_network));
      groups.push_back(group);
      // One network joins all nodes, so the slowest of the presets' decides.
      if (group_network && (!network || group_network->bandwidth < network->bandwidth))
        network = group_network;
    }
    return groups;
  });
  if (network) cluster.inter_node = *network;
  r.optional("inter_node", cluster.inter_node, read_link);
  r.optional("calibration", cluster.calibration, read_text());
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  BAYPLAN_RETURN_IF_ERROR(check_cluster(cluster, at.where()));
  return cluster;
}

Result<HardwarePreset> read_hardware_preset(const JsonCursor& at) {
  HardwarePreset preset;
  std::string schema;
  ObjectReader r(at);
  r.required("schema", schema,
             [](const JsonCursor& c) { return c.one_of({"bayplan.hardware/1"}); });
  r.required("device", preset.group.device, read_device);
  r.required("node", preset.group, [&](const JsonCursor& c) -> Result<NodeGroup> {
    NodeGroup group = preset.group;
    ObjectReader node(c);
    read_node_fields(node, group);
    BAYPLAN_RETURN_IF_ERROR(node.finish());
    return group;
  });
  r.required("inter_node", preset.inter_node, read_link);
  r.allow("sources");
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  preset.group.name = preset.group.device.name;
  return preset;
}

ordered_json write_cluster(const Cluster& cluster) {
  ordered_json groups = ordered_json::array();
  for (const NodeGroup& g : cluster.groups) {
    ordered_json group = {{"name", g.name},
                          {"nodes", g.nodes},
                          {"devices_per_node", g.devices_per_node},
                          {"device", write_device(g.device)},
                          {"host_memory", exact_bytes(g.host_memory)},
                          {"nvme", exact_bytes(g.nvme)},
                          {"nvme_read", exact_rate(g.nvme_read)},
                          {"nvme_write", exact_rate(g.nvme_write)}};
    // A link of no bandwidth is one that does not exist.
    if (g.intra_node.bandwidth.value > 0.0) group["intra_node"] = write_link(g.intra_node);
    if (g.host_link.bandwidth.value > 0.0) group["host_link"] = write_link(g.host_link);
    if (g.host_memory_bandwidth.value > 0.0)
      group["host_memory_bandwidth"] = exact_rate(g.host_memory_bandwidth);
    group["cores"] = g.cores;
    groups.push_back(std::move(group));
  }
  ordered_json out = {
      {"schema", kClusterSchema}, {"name", cluster.name}, {"groups", std::move(groups)}};
  if (cluster.inter_node.bandwidth.value > 0.0) out["inter_node"] = write_link(cluster.inter_node);
  if (!cluster.calibration.empty()) out["calibration"] = cluster.calibration;
  return out;
}

}  // namespace bayplan
