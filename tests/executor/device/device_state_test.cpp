// Initial values, norm, optimizers and the enforced workspace of the CPU device.
#include <gtest/gtest.h>

#include <cmath>

#include "executor/error.h"
#include "kernels/types.h"
#include "tests/executor/device/device_run.h"

namespace bayplan::exec {
namespace {

DeviceRun make_run(DType compute, int threads = 1) {
  Program program = one_rank_program(tiny_gpt2(true), compute, 0.0, 1, threads);
  return DeviceRun(std::move(program), threads, tokens(97, 1), tokens(97, 2));
}

template <class T>
std::vector<double> values(const DeviceRun& run, BufferRole role, const std::string& wanted) {
  std::vector<double> result;
  run.for_each_parameter(role, [&](const std::string& name, const Shape& shape, std::byte* at) {
    if (name != wanted) return;
    const T* x = reinterpret_cast<const T*>(at);
    result.assign(x, x + shape.count());
  });
  return result;
}

TEST(DeviceState, InitialValuesFollowTheParameterSpec) {
  DeviceRun run = make_run(DType::kFp32);
  run.run(ProgramKind::kLoad);
  const auto check = [&](const std::string& name, double want_std) {
    const std::vector<double> x = values<float>(run, BufferRole::kParameters, name);
    double mean = 0.0, square = 0.0;
    for (const double v : x) mean += v, square += v * v;
    const auto n = static_cast<double>(x.size());
    // Five standard errors of a mean and of a standard deviation.
    EXPECT_NEAR(mean / n, 0.0, 5 * want_std / std::sqrt(n)) << name;
    EXPECT_NEAR(std::sqrt(square / n), want_std, 5 * want_std / std::sqrt(2 * n)) << name;
  };
  check("embedding.weight", 0.02);
  check("embedding.positions", 0.02);
  check("blocks.1.attention.qkv.weight", 0.02);
  check("blocks.1.mlp.down.weight", 0.02 / std::sqrt(4.0));  // 2 · 2 layers
  EXPECT_EQ(values<float>(run, BufferRole::kParameters, "head.norm.weight"),
            std::vector<double>(64, 1.0));
  EXPECT_EQ(values<float>(run, BufferRole::kParameters, "head.norm.bias"),
            std::vector<double>(64, 0.0));
}

TEST(DeviceState, TensorsDrawDifferentNumbersAndPrecisionsTheSame) {
  DeviceRun fp32 = make_run(DType::kFp32), bf16 = make_run(DType::kBf16, 2);
  fp32.run(ProgramKind::kLoad);
  bf16.run(ProgramKind::kLoad);
  const std::string name = "blocks.0.mlp.up.weight";
  const std::vector<double> wide = values<float>(fp32, BufferRole::kParameters, name);
  EXPECT_NE(wide, values<float>(fp32, BufferRole::kParameters, "blocks.1.mlp.up.weight"));
  EXPECT_EQ(wide, values<float>(bf16, BufferRole::kMaster, name));
  bf16.for_each_parameter(
      BufferRole::kParameters, [&](const std::string& n, const Shape&, std::byte* at) {
        if (n != name) return;
        const auto* narrow = reinterpret_cast<const kernels::bf16*>(at);
        for (std::size_t i = 0; i < wide.size(); ++i) {
          ASSERT_EQ(narrow[i].bits, kernels::to_bf16(static_cast<float>(wide[i])).bits);
        }
      });
}

TEST(DeviceState, NormIsTheSumOfSquaresOfEachGroup) {
  DeviceRun run = make_run(DType::kFp64, 2);
  run.run(ProgramKind::kLoad);
  run.run(ProgramKind::kTrainStep, InstructionKind::kOptimizerStep);
  for (std::size_t g = 0; g < run.program.parameter_groups.size(); ++g) {
    double want = 0.0;
    const auto* x =
        reinterpret_cast<const double*>(run.state(BufferRole::kGradients, ParameterGroupId(g)));
    for (std::int64_t i = 0; i < run.program.parameter_groups[g].padded_elements; ++i) {
      want += x[i] * x[i];
    }
    EXPECT_GT(want, 0.0);
    EXPECT_NEAR(run.scalars()[1 + g] / want, 1.0, 1e-12);
  }
}

// AdamW's first step: m/bc1 = g and sqrt(v/bc2) = |g|, so an element moves by lr · g/(|g| + eps)
// after a decay of 1 - lr·wd, on groups that decay. g is the clipped mean gradient.
TEST(DeviceState, FirstAdamWStepIsASignedStepAfterDecay) {
  DeviceRun run = make_run(DType::kFp64);
  run.run(ProgramKind::kLoad);
  const std::string matrix = "blocks.0.mlp.up.weight", norm = "head.norm.weight";
  const std::vector<double> before = values<double>(run, BufferRole::kParameters, matrix);
  run.run(ProgramKind::kTrainStep, InstructionKind::kOptimizerStep);
  const std::vector<double> gradient = values<double>(run, BufferRole::kGradients, matrix);
  const std::vector<double> norm_gradient = values<double>(run, BufferRole::kGradients, norm);
  run.run(ProgramKind::kTrainStep);
  const TrainingJob& job = run.program.job;
  double squares = 0.0;
  for (std::size_t g = 0; g < run.program.parameter_groups.size(); ++g) {
    squares += run.scalars()[1 + g];
  }
  const double mean_norm = std::sqrt(squares) / 32;  // tokens
  const double scale = std::min(1.0, job.clip_norm / (mean_norm + 1e-6)) / 32;
  const auto moved = [&](double x, double g, double decay) {
    return x * (1 - job.learning_rate * decay) -
           job.learning_rate * g * scale / (std::abs(g * scale) + job.epsilon);
  };
  const std::vector<double> after = values<double>(run, BufferRole::kParameters, matrix);
  for (std::size_t i = 0; i < before.size(); ++i) {
    ASSERT_NEAR(after[i], moved(before[i], gradient[i], job.weight_decay), 1e-12) << i;
  }
  const std::vector<double> norm_after = values<double>(run, BufferRole::kParameters, norm);
  for (std::size_t i = 0; i < norm_after.size(); ++i) {
    ASSERT_NEAR(norm_after[i], moved(1.0, norm_gradient[i], 0.0), 1e-12) << i;
  }
}

// With the gradients of the second step at hand, and buffer b = g of the first:
//   sgd p -= lr g · sgd-momentum b = mu b + g, p -= lr b, for g = scale · gradient + decay · p.
TEST(DeviceState, SgdStepsAsItsFormulaSays) {
  for (const OptimizerKind optimizer : {OptimizerKind::kSgd, OptimizerKind::kSgdMomentum}) {
    SCOPED_TRACE(optimizer_spec(optimizer).name);
    Program program = one_rank_program(tiny_gpt2(true), DType::kFp64, 0.0, 1, 1, optimizer);
    DeviceRun run(std::move(program), 1, tokens(97, 1), tokens(97, 2));
    const TrainingJob& job = run.program.job;
    run.run(ProgramKind::kLoad);
    const std::string matrix = "blocks.0.mlp.up.weight";
    std::vector<double> buffer;
    for (int step = 0; step < 2; ++step) {
      const std::vector<double> before = values<double>(run, BufferRole::kParameters, matrix);
      run.run(ProgramKind::kTrainStep, InstructionKind::kOptimizerStep, step);
      const std::vector<double> gradient = values<double>(run, BufferRole::kGradients, matrix);
      double squares = 0.0;
      for (std::size_t g = 0; g < run.program.parameter_groups.size(); ++g)
        squares += run.scalars()[1 + g];
      const double scale = std::min(1.0, job.clip_norm / (std::sqrt(squares) / 32 + 1e-6)) / 32;
      run.run(ProgramKind::kTrainStep, InstructionKind::kEndStep, step);
      const std::vector<double> after = values<double>(run, BufferRole::kParameters, matrix);
      buffer.resize(before.size(), 0.0);
      for (std::size_t i = 0; i < before.size(); ++i) {
        const double g = scale * gradient[i] + job.weight_decay * before[i];
        buffer[i] = (optimizer == OptimizerKind::kSgdMomentum ? job.momentum : 0.0) * buffer[i] + g;
        ASSERT_NEAR(after[i], before[i] - job.learning_rate * buffer[i], 1e-14) << i;
      }
    }
  }
}

TEST(DeviceState, NotFiniteGradientsLeaveTheStateUntouched) {
  DeviceRun run = make_run(DType::kFp32);
  run.run(ProgramKind::kLoad);
  run.run(ProgramKind::kTrainStep, InstructionKind::kOptimizerStep);
  auto* scalars = reinterpret_cast<double*>(run.state(BufferRole::kScalars));
  scalars[1] = std::nan("");
  const std::vector<std::byte> before = run.bytes(BufferRole::kParameters);
  const InstructionList& list = run.program.list(0, ProgramKind::kTrainStep);
  for (const Instruction& i : list.instructions) {
    if (i.kind != InstructionKind::kOptimizerStep) continue;
    ComputeCall call;
    call.program = &run.program;
    call.rank_class = &run.rank_class();
    call.list = &list;
    call.instruction = &i;
    call.learning_rate = 1e-3;
    call.arenas = run.arenas;
    EXPECT_FALSE(run.device->optimizer_step(call));
  }
  EXPECT_EQ(run.bytes(BufferRole::kParameters), before);
}

TEST(DeviceState, WorkspaceUseIsReportedAndDeclared) {
  DeviceRun run = make_run(DType::kFp32, 2);
  run.run(ProgramKind::kLoad);
  EXPECT_EQ(run.device->workspace_used(), 0);
  run.run(ProgramKind::kTrainStep);
  EXPECT_GT(run.device->workspace_used(), 0);  // attention keeps a block of scores there
  std::int64_t declared = 0;
  for (const UnitLayout& layout : run.program.layouts) {
    for (const std::int64_t bytes : layout.workspace_bytes) declared = std::max(declared, bytes);
  }
  EXPECT_LE(run.device->workspace_used(), declared);
}

TEST(DeviceState, TooSmallAWorkspaceFailsByName) {
  Program program = one_rank_program(tiny_gpt2(true), DType::kFp32, 0.0);
  InstructionList& list =
      program.classes[0].programs[static_cast<std::size_t>(ProgramKind::kTrainStep)];
  for (Access& access : list.accesses) {
    const Buffer& buffer = program.classes[0].buffers[access.buffer.index()];
    if (buffer.role == BufferRole::kWorkspace) access.bytes -= 1024;
  }
  DeviceRun run(std::move(program), 1, tokens(97, 1), tokens(97, 2));
  run.run(ProgramKind::kLoad);
  try {
    run.run(ProgramKind::kTrainStep);
    FAIL() << "ran with less workspace than its temporaries need";
  } catch (const ExecutorError& e) {
    EXPECT_EQ(e.rank, 0);
    EXPECT_NE(e.instruction.find(" F "), std::string::npos) << e.instruction;
    EXPECT_NE(std::string(e.what()).find("declared workspace"), std::string::npos);
  }
}

}  // namespace
}  // namespace bayplan::exec
