// Claims about saved state: every logical tensor once, whole and unpadded whatever the layout; the
// hash and the file cover exactly that.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "executor/checkpoint/gather_state.h"
#include "executor/checkpoint/safetensors.h"
#include "executor/checkpoint/state_hash.h"
#include "executor/comm/local.h"
#include "tests/property/random_program.h"

namespace bayplan::exec {
namespace {

using bayplan::test::lower_tiny;
using bayplan::test::TinyPlan;

constexpr float kPadding = -1.0f;

/// What every logical element holds: its group, role and place in the flat state.
float value_of(std::size_t group, BufferRole role, std::int64_t element) {
  return static_cast<float>(element) + 1e5f * static_cast<float>(group) +
         1e4f * static_cast<float>(static_cast<int>(role));
}

/// fp32 arenas of one rank, per tier, as a run would leave them, with recognisable values.
std::array<std::vector<float>, kTierCount> fill(const Program& program, int rank) {
  const RankClass& c = program.class_of(rank);
  std::array<std::vector<float>, kTierCount> arenas;
  for (std::size_t t = 0; t < kTierCount; ++t)
    arenas[t].assign(static_cast<std::size_t>(c.arena_bytes[t]) / sizeof(float), kPadding);
  for (const Buffer& b : c.buffers) {
    if (!b.persistent || !b.parameter_group.valid()) continue;
    const ParameterGroup& group = program.parameter_groups[b.parameter_group.index()];
    const std::int64_t elements = b.bytes / 4;
    const bool shard = elements < group.padded_elements;
    const std::int64_t first = shard ? shard_index(program, group, rank) * group.shard_elements : 0;
    for (std::int64_t e = 0; e < elements; ++e) {
      arenas[static_cast<std::size_t>(b.tier)][static_cast<std::size_t>(b.offset / 4 + e)] =
          value_of(b.parameter_group.index(), b.role, first + e);
    }
  }
  return arenas;
}

std::map<std::string, std::vector<float>> gather(const Program& program,
                                                 std::string* hash = nullptr) {
  const auto communicators = make_local_communicators(program.world_size());
  std::map<std::string, std::vector<float>> seen;
  StateHash hasher;
  std::string last;
  std::vector<std::thread> threads;
  for (int r = 0; r < program.world_size(); ++r) {
    threads.emplace_back([&, r] {
      auto arenas = fill(program, r);
      std::array<std::byte*, kTierCount> starts{};
      for (std::size_t t = 0; t < kTierCount; ++t)
        starts[t] = reinterpret_cast<std::byte*>(arenas[t].data());
      gather_state(program, starts, *communicators[static_cast<std::size_t>(r)], 7,
                   [&](const LogicalTensor& t) {
                     EXPECT_EQ(r, 0);
                     EXPECT_LT(last, t.name);
                     last = t.name;
                     hasher.add(t);
                     if (t.name == "step") {
                       std::int64_t step = 0;
                       std::memcpy(&step, t.bytes.data(), sizeof step);
                       EXPECT_EQ(step, 7);
                       return;
                     }
                     std::vector<float> values(t.bytes.size() / 4);
                     std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
                     EXPECT_EQ(static_cast<std::int64_t>(values.size()), t.shape.count());
                     EXPECT_TRUE(seen.emplace(t.name, values).second) << t.name;
                   });
    });
  }
  for (std::thread& t : threads) t.join();
  if (hash != nullptr) *hash = hasher.hex();
  return seen;
}

TEST(State, EveryTensorIsWholeInEveryLayout) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    TinyPlan tiny = bayplan::test::random_plan(seed);
    tiny.bf16 = false;
    if (!optimizer_spec(tiny.optimizer).moment1) tiny.offload.optimizer = false;
    const Program program = lower_tiny(tiny);
    const auto seen = gather(program);
    std::size_t expected = 0;
    for (std::size_t g = 0; g < program.parameter_groups.size(); ++g) {
      for (const GroupParameter& p : program.parameter_groups[g].parameters) {
        for (const auto& [prefix, role] : {std::pair("weights/", BufferRole::kParameters),
                                           std::pair("moment1/", BufferRole::kMoment1),
                                           std::pair("moment2/", BufferRole::kMoment2)}) {
          const OptimizerSpec& spec = optimizer_spec(tiny.optimizer);
          if (role == BufferRole::kMoment1 && !spec.moment1) continue;
          if (role == BufferRole::kMoment2 && !spec.moment2) continue;
          ++expected;
          const auto at = seen.find(prefix + p.name);
          ASSERT_NE(at, seen.end()) << prefix << p.name;
          for (std::int64_t e = 0; e < p.shape.count(); ++e) {
            ASSERT_EQ(at->second[static_cast<std::size_t>(e)], value_of(g, role, p.offset + e))
                << to_string(tiny) << " " << at->first << " element " << e;
          }
        }
      }
    }
    EXPECT_EQ(seen.size(), expected) << to_string(tiny);
  }
}

TEST(State, HashDependsOnTheStateOnly) {
  std::string one, many, other;
  gather(lower_tiny({.tied = true}), &one);
  gather(lower_tiny({.pp = 3, .dp = 3, .micro_batches = 2, .zero = 1, .tied = true}), &many);
  gather(lower_tiny({.tied = false}), &other);
  EXPECT_EQ(one, many);
  EXPECT_NE(one, other);
  EXPECT_EQ(one.size(), 32u);
}

TEST(State, HashCoversNameTypeShapeAndBytes) {
  const std::vector<std::byte> bytes(8, std::byte{1});
  const auto hash = [&](const LogicalTensor& t) {
    StateHash h;
    h.add(t);
    return h.hex();
  };
  const std::string base = hash({"a", DType::kFp32, Shape{2}, bytes});
  EXPECT_EQ(base, hash({"a", DType::kFp32, Shape{2}, bytes}));
  EXPECT_NE(base, hash({"b", DType::kFp32, Shape{2}, bytes}));
  EXPECT_NE(base, hash({"a", DType::kInt32, Shape{2}, bytes}));
  EXPECT_NE(base, hash({"a", DType::kFp32, Shape{2, 1}, bytes}));
  EXPECT_NE(base, hash({"a", DType::kFp32, Shape{2}, std::vector<std::byte>(8, std::byte{2})}));
}

class SafetensorsFile : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            ("bayplan_st_" + std::to_string(::getpid()) + "_" +
             ::testing::UnitTest::GetInstance()->current_test_info()->name());
  }
  void TearDown() override {
    std::filesystem::remove(path_);
    std::filesystem::remove(path_.string() + ".part");
  }
  std::filesystem::path path_;
};

TEST_F(SafetensorsFile, HoldsHeaderAndAlignedData) {
  const std::vector<float> a = {1, 2, 3};
  const std::vector<double> b = {4};
  const std::vector<LogicalTensor> tensors = {
      {"a", DType::kFp32, Shape{3, 1}, std::as_bytes(std::span(a))},
      {"b", DType::kFp64, Shape{}, std::as_bytes(std::span(b))}};
  {
    SafetensorsWriter writer(path_, tensors, {{"format", "pt"}});
    for (const LogicalTensor& t : tensors) writer.add(t);
    EXPECT_FALSE(std::filesystem::exists(path_));  // not before it is whole
    writer.finish();
  }
  std::ifstream file(path_, std::ios::binary);
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), 8);
  EXPECT_EQ(length, 4096u - 8u);
  std::string text(length, ' ');
  file.read(text.data(), static_cast<std::streamsize>(length));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["__metadata__"]["format"], "pt");
  EXPECT_EQ(json["a"]["dtype"], "F32");
  EXPECT_EQ(json["a"]["shape"], (std::vector<int>{3, 1}));
  EXPECT_EQ(json["a"]["data_offsets"], (std::vector<int>{0, 12}));
  EXPECT_EQ(json["b"]["data_offsets"], (std::vector<int>{12, 20}));
  std::vector<float> read_a(3);
  file.read(reinterpret_cast<char*>(read_a.data()), 12);
  EXPECT_EQ(read_a, a);
  EXPECT_EQ(std::filesystem::file_size(path_), 4096u + 20u);
}

TEST_F(SafetensorsFile, LeavesNothingWhenUnfinished) {
  const std::vector<float> a = {1};
  const std::vector<LogicalTensor> tensors = {
      {"a", DType::kFp32, Shape{1}, std::as_bytes(std::span(a))}};
  { SafetensorsWriter writer(path_, tensors, {}); }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(path_.string() + ".part"));
}

TEST_F(SafetensorsFile, NamesTheFileItCannotWrite) {
  try {
    SafetensorsWriter writer("/nonexistent/model.safetensors", {}, {});
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(),
                 "cannot create /nonexistent/model.safetensors: No such file or directory");
  }
}

}  // namespace
}  // namespace bayplan::exec
