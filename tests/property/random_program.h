// Small programs for tests: the plan is drawn, or given, and lowered. Not for: executing.
#pragma once

#include <cstdint>
#include <string>

#include "planner/core/plan.h"
#include "planner/program/program.h"

namespace bayplan::test {

/// What a tiny program is made of. Every field is within what lower() supports.
struct TinyPlan {
  int pp = 1;
  int dp = 1;
  int micro_batches = 1;
  int zero = 0;
  bool each_micro_batch = false;  // gradients are reduced
  Reshard reshard = Reshard::kUnit;
  int prefetch = 1;
  Recompute recompute = Recompute::kNone;
  Offload offload = {};
  bool mixed_zero = false;  // the last stage has ZeRO 3 - zero
  std::string schedule = "1f1b";
  int chunks = 1;
  bool tied = false;
  bool llama = false;
  int layers = 2;
  bool bf16 = false;
  bool dropout = false;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
};

std::string to_string(const TinyPlan& plan);

/// pp 1-4, dp 1-3, micro-batches 1-6, ZeRO 0-3 with every choice it leaves, every schedule, tied or
/// not (not where the tied units are in several stages of one rank: the order of their sum is
/// free), both families, every optimizer.
TinyPlan random_plan(std::uint64_t seed);

/// hidden 16, 2 heads, ffn 32, vocabulary 13, 4 tokens. The cluster has as many devices as ranks.
Program lower_tiny(const TinyPlan& plan);

}  // namespace bayplan::test
