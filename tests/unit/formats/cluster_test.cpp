// CLUSTER: the grammar, cluster.json, --set, and presets whose every number has a source.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/clusters.h"
#include "models/embedded.h"
#include "planner/formats/cluster_grammar.h"
#include "planner/formats/cluster_json.h"
#include "planner/formats/cluster_settings.h"

namespace bayplan {
namespace {

TEST(ClusterGrammar, OneNodeOfEightDevices) {
  const auto cluster = resolve_cluster("8xh100-sxm-80gb");
  ASSERT_TRUE(cluster.ok());
  ASSERT_EQ(cluster->groups.size(), 1u);
  EXPECT_EQ(cluster->groups[0].nodes, 1);
  EXPECT_EQ(cluster->groups[0].devices_per_node, 8);
  EXPECT_EQ(cluster->device_count(), 8);
}

TEST(ClusterGrammar, NodesTimesDevicesAtABandwidth) {
  const auto cluster = resolve_cluster("16x8xa100-sxm-80gb@200Gbps");
  ASSERT_TRUE(cluster.ok());
  EXPECT_EQ(cluster->device_count(), 128);
  EXPECT_EQ(cluster->groups[0].nodes, 16);
  EXPECT_DOUBLE_EQ(cluster->inter_node.bandwidth.value, 25e9);
}

TEST(ClusterGrammar, MixedGroupsKeepTheirOrderAndTakeTheSlowestNetwork) {
  const auto cluster = resolve_cluster("8xa100-sxm-40gb+8xv100-sxm2-32gb");
  ASSERT_TRUE(cluster.ok());
  ASSERT_EQ(cluster->groups.size(), 2u);
  EXPECT_EQ(cluster->groups[1].device.name, "v100-sxm2-32gb");
  // A100 nodes have 200 Gbit/s per GPU, V100 nodes 50.
  EXPECT_DOUBLE_EQ(cluster->inter_node.bandwidth.value, 50e9 / 8);
  // Ranks fill nodes in order: rank 8 is the first V100, on the second node.
  EXPECT_EQ(place_of(*cluster, 8).group, 1);
  EXPECT_EQ(place_of(*cluster, 8).node, 1);
  EXPECT_EQ(place_of(*cluster, 8).device, 0);
}

TEST(ClusterGrammar, LocalhostSharesOutThreeQuartersOfTheMemory) {
  const auto four = resolve_cluster("localhost:4");
  const auto emulated = resolve_cluster("2xlocalhost:2");
  ASSERT_TRUE(four.ok() && emulated.ok());
  EXPECT_TRUE(is_localhost(*four));
  const NodeGroup& node = four->groups[0];
  EXPECT_EQ(node.devices_per_node, 4);
  EXPECT_EQ(node.device.device_class, DeviceClass::kCpu);
  // 3/4 of the memory over four ranks against 1/4 for the host: 3 : 4, up to rounding.
  EXPECT_NEAR(static_cast<double>(node.device.memory.value) * 4 / 3,
              static_cast<double>(node.host_memory.value), 16);
  EXPECT_EQ(emulated->groups[0].nodes, 2);
  EXPECT_EQ(emulated->device_count(), 4);
  EXPECT_NEAR(static_cast<double>(emulated->groups[0].device.memory.value),
              static_cast<double>(node.device.memory.value), 16);
}

struct BadCluster {
  const char* text;
  const char* code;
};
class RefusedCluster : public ::testing::TestWithParam<BadCluster> {};

TEST_P(RefusedCluster, WithCodeAndHint) {
  const auto cluster = resolve_cluster(GetParam().text);
  ASSERT_FALSE(cluster.ok()) << GetParam().text;
  EXPECT_EQ(cluster.error().code, GetParam().code)
      << GetParam().text << ": " << cluster.error().message;
  EXPECT_FALSE(cluster.error().where.empty()) << GetParam().text;
  EXPECT_FALSE(cluster.error().hint.empty()) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(
    Texts, RefusedCluster,
    ::testing::Values(
        BadCluster{"", "bad-cluster"}, BadCluster{"8x", "unknown-preset"},
        BadCluster{"h100", "unknown-preset"}, BadCluster{"8xh100-sxm-80bg", "unknown-preset"},
        BadCluster{"0xh200", "out-of-range"}, BadCluster{"8x0xh200", "out-of-range"},
        BadCluster{"99999999999999999999xh200", "out-of-range"},
        BadCluster{"1000000x1000000xh200", "out-of-range"}, BadCluster{"h200@25", "bad-quantity"},
        BadCluster{"h200@-1Gbps", "out-of-range"}, BadCluster{"h200@0Gbps", "out-of-range"},
        BadCluster{"localhost:0", "out-of-range"}, BadCluster{"localhost:x", "bad-cluster"},
        BadCluster{"localhost:", "bad-cluster"}, BadCluster{"2x2xlocalhost:2", "bad-cluster"},
        BadCluster{"localhost:2@1Gbps", "bad-cluster"}, BadCluster{"1xh200:4", "unsupported"},
        BadCluster{"h200+", "bad-cluster"}, BadCluster{"h200+localhost:2", "bad-cluster"},
        BadCluster{"no/such/cluster.json", "file-not-found"}));

TEST(ClusterGrammar, UnknownPresetNamesTheNearest) {
  const auto cluster = resolve_cluster("8xh100-smx-80gb");
  ASSERT_FALSE(cluster.ok());
  EXPECT_NE(cluster.error().hint.find("'h100-sxm-80gb'"), std::string::npos)
      << cluster.error().hint;
}

TEST(ClusterJson, WrittenClusterReadsBackTheSame) {
  for (const char* text : {"a100-sxm-80gb", "16x8xh100-sxm-80gb@400Gbps",
                           "8xa100-sxm-40gb+8xv100-sxm2-32gb", "localhost:4", "2xcpu"}) {
    const auto cluster = resolve_cluster(text);
    ASSERT_TRUE(cluster.ok()) << text;
    const nlohmann::ordered_json json = write_cluster(*cluster);
    const auto back = read_cluster(JsonCursor(json_document(nlohmann::json(json), "c.json")),
                                   find_hardware_preset);
    ASSERT_TRUE(back.ok()) << text << back.error().message << back.error().where;
    EXPECT_EQ(write_cluster(*back), json) << text;
  }
}

Result<Cluster> read_text(const char* text) {
  BAYPLAN_TRY(document, parse_json(text, "c.json"));
  return read_cluster(JsonCursor(document), find_hardware_preset);
}

TEST(ClusterJson, DeviceMayBeAPresetWithChanges) {
  const auto cluster = read_text(
      R"({"groups": [{"device": "h200", "nodes": 2, "devices_per_node": 4, "host_memory": "512GiB"}],
          "inter_node": {"latency": "3us", "bandwidth": "25Gbps"}})");
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ(cluster->device_count(), 8);
  EXPECT_EQ(cluster->groups[0].host_memory, 512_GiB);
  EXPECT_DOUBLE_EQ(cluster->inter_node.bandwidth.value, 25e9 / 8);
}

TEST(ClusterJson, RefusesWhatIsIncompleteOrUnknown) {
  EXPECT_EQ(read_text(R"({"groups": [{"device": "h201"}]})").error().code, "unknown-preset");
  EXPECT_EQ(read_text(R"({"groups": [{"device": "h200", "node": 2}]})").error().code,
            "unknown-field");
  EXPECT_EQ(read_text(R"({"groups": []})").error().code, "out-of-range");
  EXPECT_EQ(read_text(R"({"groups": [{"device": "h200", "host_memory": 5}]})").error().where,
            "c.json:/groups/0/host_memory");
  EXPECT_EQ(
      read_text(R"({"groups": [{"device": "h200", "nodes": 1048576, "devices_per_node": 8}]})")
          .error()
          .code,
      "out-of-range");
}

Result<Cluster> set(const char* cluster_text, std::vector<std::string> settings) {
  BAYPLAN_TRY(cluster, resolve_cluster(cluster_text));
  return apply_settings(cluster, settings);
}

TEST(ClusterSettings, ReachFieldsByPathAndShortName) {
  const auto cluster =
      set("8xa100-sxm-80gb", {"host_memory=256GiB", "nvme=2TB@3GB/s", "inter_node_bandwidth=25Gbps",
                              "device.memory=70GiB", "groups.0.device.peak.bf16=300TFLOP/s"});
  ASSERT_TRUE(cluster.ok()) << cluster.error().message << cluster.error().hint;
  const NodeGroup& node = cluster->groups[0];
  EXPECT_EQ(node.host_memory, 256_GiB);
  EXPECT_EQ(node.nvme.value, 2'000'000'000'000);
  EXPECT_DOUBLE_EQ(node.nvme_read.value, 3e9);
  EXPECT_DOUBLE_EQ(node.nvme_write.value, 3e9);
  EXPECT_DOUBLE_EQ(cluster->inter_node.bandwidth.value, 25e9 / 8);
  EXPECT_EQ(node.device.memory, 70_GiB);
  EXPECT_DOUBLE_EQ(node.device.peak.at(DType::kBf16).value, 300e12);
}

TEST(ClusterSettings, WithoutAGroupNumberChangesAllGroups) {
  const auto both = set("8xa100-sxm-40gb+8xv100-sxm2-32gb",
                        {"host_memory=100GiB", "groups.1.memory_bandwidth=1GB/s"});
  ASSERT_FALSE(both.ok());  // "device." may be left out only without the group
  const auto all = set("8xa100-sxm-40gb+8xv100-sxm2-32gb", {"host_memory=100GiB"});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->groups[0].host_memory, 100_GiB);
  EXPECT_EQ(all->groups[1].host_memory, 100_GiB);
}

TEST(ClusterSettings, UnknownPathNamesTheNearest) {
  const auto cluster = set("h200", {"host_memroy=1GiB"});
  ASSERT_FALSE(cluster.ok());
  EXPECT_EQ(cluster.error().code, "unknown-path");
  EXPECT_EQ(cluster.error().hint, "nearest: 'host_memory'");
}

TEST(ClusterSettings, RefusesBadValues) {
  EXPECT_EQ(set("h200", {"host_memory"}).error().code, "bad-setting");
  EXPECT_EQ(set("h200", {"host_memory="}).error().code, "bad-setting");
  EXPECT_EQ(set("h200", {"host_memory=5"}).error().code, "bad-quantity");
  EXPECT_EQ(set("h200", {"device.memory=0GB"}).error().code, "out-of-range");
  EXPECT_EQ(set("h200", {"gemm_efficiency=fast"}).error().code, "wrong-type");
  EXPECT_EQ(set("h200", {"gemm_efficiency=2"}).error().code, "out-of-range");
  EXPECT_EQ(set("h200", {"nodes=0"}).error().code, "out-of-range");
}

/// Dotted paths of the numbers of a preset file.
void number_paths(const nlohmann::json& value, const std::string& path,
                  std::vector<std::string>& out) {
  if (value.is_object()) {
    for (const auto& item : value.items()) {
      if (item.key() == "name" || item.key() == "class" || item.key() == "source" ||
          item.key() == "provenance")
        continue;
      number_paths(item.value(), path.empty() ? item.key() : path + "." + item.key(), out);
    }
    return;
  }
  out.push_back(path);
}

TEST(HardwarePresets, EveryNumberHasASourceWithADate) {
  ASSERT_FALSE(hardware_preset_names().empty());
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.starts_with("models/hardware/")) continue;
    const nlohmann::json json = nlohmann::json::parse(file.text);
    std::vector<std::string> paths;
    for (const char* part : {"device", "node", "inter_node"}) number_paths(json[part], part, paths);
    for (const std::string& path : paths) {
      std::string source;
      for (const auto& item : json["sources"].items()) {
        if (path == item.key() || path.starts_with(item.key() + "."))
          source = item.value().get<std::string>();
      }
      // A GPU node shares no cores among ranks, which needs no source.
      if (path == "node.cores" && json["node"]["cores"] == 0) continue;
      ASSERT_FALSE(source.empty()) << file.path << " " << path;
      const bool dated = source.find("20") != std::string::npos;
      const bool says_none =
          source.find("none") != std::string::npos || source.find("unknown") != std::string::npos;
      EXPECT_TRUE(dated || says_none) << file.path << " " << path << ": " << source;
    }
  }
}

TEST(HardwarePresets, AllReadAndAreNamedLikeTheirFile) {
  for (const std::string& name : hardware_preset_names()) {
    const auto preset = find_hardware_preset(name, "test");
    ASSERT_TRUE(preset.ok()) << name << ": " << preset.error().message << " "
                             << preset.error().where;
    EXPECT_EQ(preset->group.device.name, name);
  }
}

}  // namespace
}  // namespace bayplan
