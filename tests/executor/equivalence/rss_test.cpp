// What a run takes from the machine is its arenas and little else.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "executor/data/data_source.h"
#include "executor/device_torch.h"
#include "executor/run.h"
#include "tests/unit/program/tiny_plans.h"

namespace bayplan {
namespace {

std::int64_t resident_bytes() {
  std::int64_t total_pages = 0;
  std::int64_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> total_pages >> resident_pages;
  return resident_pages * ::sysconf(_SC_PAGESIZE);
}

TEST(ResidentMemory, GrowsByTheArenasPlusTenPercent) {
  Architecture a = test::tiny_architecture(4, false);
  a.hidden = 512;
  a.heads = 8;
  a.kv_heads = 8;
  a.head_dim = 64;
  a.ffn = 2048;
  a.vocab = 8192;
  a.max_seq = 64;
  const ModelGraph graph = build_model(a, false);
  Plan plan = test::tiny_plan({.pp = 2, .micro_batches = 4}, graph);
  plan.job.seq = 64;
  const Program program = std::move(*lower(plan, graph, test::tiny_cluster(2)));
  const auto data = exec::synthetic_data(1, 64, a.vocab);
  std::int64_t most = 0;
  auto run = [&] {
    exec::RunOptions options;
    options.steps = 3;
    options.hash_state = false;
    options.on_step = [&](const exec::StepMetrics&) { most = std::max(most, resident_bytes()); };
    const auto result = exec::run_local(
        program, [](int rank) { return exec::make_torch_cpu_device(rank, 1); }, *data, nullptr,
        options);
    ASSERT_TRUE(result.ok()) << result.error().message;
  };
  run();  // loads libraries' lazily made state
  const std::int64_t before = resident_bytes();
  most = 0;
  run();
  std::int64_t arenas = 0;
  for (const RankClass& c : program.classes) arenas += c.arena_bytes[0];
  EXPECT_GT(arenas, std::int64_t{200} << 20);
  EXPECT_LE(most - before, arenas + arenas / 10);
}

}  // namespace
}  // namespace bayplan
