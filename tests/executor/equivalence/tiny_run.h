// Trains a tiny model under one layout and returns what can be compared with another layout.
#pragma once

#include <unistd.h>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "executor/data/data_source.h"
#include "executor/device_torch.h"
#include "executor/run.h"
#include "tests/unit/program/tiny_plans.h"

namespace bayplan::test {

struct TinyRun {
  TinyShape shape{.layers = 4};
  int global_batch = 4;  // samples; micro-batch 1
  int threads = 1;
  int steps = 20;
  double clip = 1.0;
  bool dump = false;
};

/// Values of a state dump by tensor name, widened to double.
using State = std::map<std::string, std::vector<double>>;

inline State read_fp64_state(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), 8);
  std::string text(header_bytes, ' ');
  file.read(text.data(), static_cast<std::streamsize>(header_bytes));
  State state;
  const nlohmann::json header = nlohmann::json::parse(text);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__" || entry.at("dtype") != "F64") continue;
    const std::uint64_t begin = entry.at("data_offsets").at(0);
    const std::uint64_t end = entry.at("data_offsets").at(1);
    std::vector<double> values((end - begin) / sizeof(double));
    file.seekg(static_cast<std::streamoff>(8 + header_bytes + begin));
    file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(end - begin));
    state[name] = std::move(values);
  }
  return state;
}

struct TinyOutcome {
  Program program;
  exec::RunResult result;
  State state;
};

inline TinyOutcome train_tiny(TinyRun run) {
  const ModelGraph graph = tiny_graph(run.shape);
  run.shape.micro_batches = run.global_batch / run.shape.dp;
  Plan plan = tiny_plan(run.shape, graph);
  plan.threads_per_rank = run.threads;
  plan.job.clip_norm = run.clip;
  plan.job.seed = 7;
  TinyOutcome outcome{
      std::move(*lower(plan, graph, tiny_cluster(run.shape.pp * run.shape.dp))), {}, {}};
  exec::RunOptions options;
  options.steps = run.steps;
  std::filesystem::path dump;
  if (run.dump) {
    dump = std::filesystem::temp_directory_path() /
           ("bayplan_state_" + std::to_string(::getpid()) + "_" + std::to_string(run.shape.pp) +
            std::to_string(run.shape.dp) + ".safetensors");
    options.dump_state = dump.string();
  }
  const auto data = exec::synthetic_data(plan.job.seed, plan.job.seq, graph.architecture.vocab);
  auto result = exec::run_local(
      outcome.program, [&](int rank) { return exec::make_torch_cpu_device(rank, run.threads); },
      *data, nullptr, options);
  if (!result) throw std::runtime_error(result.error().message + " at " + result.error().where);
  outcome.result = std::move(*result);
  if (run.dump) {
    outcome.state = read_fp64_state(dump.string());
    std::filesystem::remove(dump);
  }
  return outcome;
}

/// Largest |a-b| / max(|a|, 1e-3) over all tensors; infinity when names or sizes differ. The floor
/// keeps gradients that are mathematically zero (and their moments) from deciding.
inline double largest_difference(const State& a, const State& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double most = 0.0;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) return INFINITY;
    for (std::size_t i = 0; i < values.size(); ++i) {
      most = std::max(
          most, std::fabs(values[i] - other->second[i]) / std::max(std::fabs(values[i]), 1e-3));
    }
  }
  return most;
}

}  // namespace bayplan::test
