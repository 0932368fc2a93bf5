// Plan files: round trip, and refusals that name the field.
#include "planner/formats/plan_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "models/clusters.h"
#include "models/registry.h"

namespace bayplan {
namespace {

Plan small_plan() {
  Plan plan;
  plan.model = "gpt:hidden=64,layers=4,heads=4";
  plan.cluster = "4xh100-sxm-80gb";
  plan.job.seq = 1024;
  plan.job.global_batch = 8;
  plan.job.micro_batch = 2;
  plan.job.precision = precision_of(DType::kBf16);
  plan.mesh.pp = 2;
  plan.mesh.dp = 2;
  plan.stages = {{0, 3, 1}, {3, 3, 1}};
  plan.replicas = {{2}, {2}};
  return plan;
}

Result<PlanFile> read(const nlohmann::ordered_json& json) {
  const JsonDocument document = json_document(nlohmann::json(json), "plan.json");
  return read_plan(JsonCursor(document), find_hardware_preset);
}

Result<PlanFile> read_changed(const std::string& pointer, const nlohmann::ordered_json& value) {
  nlohmann::ordered_json json = write_plan({small_plan(), {}, {}});
  json[nlohmann::ordered_json::json_pointer(pointer)] = value;
  return read(json);
}

TEST(PlanJson, WrittenPlanReadsBackEqual) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    Plan plan = small_plan();
    plan.job.global_batch = static_cast<std::int64_t>(1 + random() % 100000);
    plan.job.learning_rate = std::generate_canonical<double, 53>(random);
    plan.job.weight_decay = std::generate_canonical<double, 53>(random) * 1e-7;
    plan.job.dropout = 0.9 * std::generate_canonical<double, 53>(random);
    plan.job.clip_norm = i % 2 == 0 ? 0.0 : 1.0 / 3.0;
    plan.job.seed = random() >> 1;
    plan.job.precision =
        precision_of(std::array{DType::kFp64, DType::kFp32, DType::kBf16}[random() % 3]);
    plan.job.optimizer = kOptimizers[random() % kOptimizers.size()].kind;
    plan.job.lr_schedule = static_cast<LearningRateSchedule>(random() % 4);
    plan.job.warmup_steps = static_cast<std::int64_t>(random() % 1000);
    plan.job.decay_steps = static_cast<std::int64_t>(random() % 1000);
    plan.job.min_learning_rate = std::generate_canonical<double, 53>(random);
    plan.job.momentum = std::generate_canonical<double, 53>(random);
    plan.job.attention = random() % 2 == 0 ? AttentionKind::kAuto : AttentionKind::kFlash;
    plan.schedule = random() % 2 == 0 ? "gpipe" : "1f1b";
    plan.threads_per_rank = static_cast<int>(1 + random() % 64);
    const auto file = read(nlohmann::ordered_json::parse(write_plan({plan, {}, {}}).dump(2)));
    ASSERT_TRUE(file.ok()) << file.error().message << file.error().where;
    EXPECT_EQ(file->plan, plan);
  }
}

TEST(PlanJson, WritesOutModelAndHardware) {
  PlanFile file{small_plan(), *resolve_model("llama-3.1-8b"),
                *resolve_cluster("2x4xa100-sxm-80gb@100Gbps")};
  const auto back = read(write_plan(file));
  ASSERT_TRUE(back.ok()) << back.error().message << back.error().where;
  ASSERT_TRUE(back->model && back->hardware);
  ModelDescription expected = *file.model;
  expected.architecture.name = file.plan.model;  // the plan's MODEL names it
  EXPECT_EQ(*back->model, expected);
  EXPECT_EQ(write_cluster(*back->hardware)["groups"], write_cluster(*file.hardware)["groups"]);
}

struct Change {
  const char* pointer;
  const char* value;  // JSON
  const char* code;
};
class RefusedPlan : public ::testing::TestWithParam<Change> {};

TEST_P(RefusedPlan, WithPointer) {
  const auto file =
      read_changed(GetParam().pointer, nlohmann::ordered_json::parse(GetParam().value));
  ASSERT_FALSE(file.ok()) << GetParam().pointer;
  EXPECT_EQ(file.error().code, GetParam().code)
      << GetParam().pointer << ": " << file.error().message;
  EXPECT_TRUE(file.error().where.starts_with("plan.json")) << file.error().where;
}

INSTANTIATE_TEST_SUITE_P(
    Fields, RefusedPlan,
    ::testing::Values(
        Change{"/schema", R"("bayplan.plan/2")", "unknown-value"},
        Change{"/job/seq", "0", "out-of-range"}, Change{"/job/seq", R"("1024")", "wrong-type"},
        Change{"/job/global_batch", "-4", "out-of-range"},
        Change{"/job/global_batch", "9000000000000000000", "out-of-range"},
        Change{"/job/precision", R"("fp16")", "unknown-value"},
        Change{"/job/grad_dtype", R"("fp64")", "unsupported"},
        Change{"/job/optimizer", R"("lion")", "unknown-value"},
        Change{"/job/momentum", "1.5", "out-of-range"},
        Change{"/job/lr_schedule", R"("step")", "unknown-value"},
        Change{"/job/warmup_steps", "-1", "out-of-range"},
        Change{"/job/dropout", "1.0", "out-of-range"}, Change{"/job/warmup", "10", "unknown-field"},
        Change{"/mesh/pp", "0", "out-of-range"}, Change{"/mesh/dp", "1048576", "out-of-range"},
        Change{"/stages", "{}", "wrong-type"}, Change{"/stages/0/zero", "4", "out-of-range"},
        Change{"/stages/0/units", "4", "unknown-field"},
        Change{"/replicas/1/micro_batches", "0", "out-of-range"},
        Change{"/grad_reduce", R"("micro")", "unknown-value"},
        Change{"/threads_per_rank", "0", "out-of-range"},
        Change{"/hardware", R"({"groups": []})", "out-of-range"},
        Change{"/architecture", "{}", "missing-field"}));

TEST(PlanJson, UnknownFieldNamesTheNearest) {
  const auto file = read_changed("/job/weigth_decay", 0.1);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().hint, "nearest known field: 'weight_decay'");
  EXPECT_EQ(file.error().where, "plan.json:/job");
}

TEST(PlanJson, EveryMissingRequiredFieldIsNamed) {
  for (const char* field :
       {"schema", "model", "cluster", "job", "mesh", "schedule", "stages", "replicas"}) {
    nlohmann::ordered_json json = write_plan({small_plan(), {}, {}});
    json.erase(field);
    const auto file = read(json);
    ASSERT_FALSE(file.ok()) << field;
    EXPECT_EQ(file.error().code, "missing-field") << field;
    EXPECT_NE(file.error().message.find(field), std::string::npos) << field;
  }
}

}  // namespace
}  // namespace bayplan
