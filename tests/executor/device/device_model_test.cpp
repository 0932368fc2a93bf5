// Whole models on the CPU device against the same model written in plain ATen, whose autograd is
// the oracle.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/executor/device/device_run.h"
#include "tests/executor/ops/op_cases.h"

namespace bayplan::exec {
namespace {

using Parameters = std::map<std::string, at::Tensor>;

/// fp64 leaves with the values that the device initialised.
Parameters leaves(const DeviceRun& run) {
  Parameters parameters;
  run.for_each_parameter(BufferRole::kParameters, [&](const std::string& name, const Shape& shape,
                                                      std::byte* at) {
    const std::vector<std::int64_t> sizes(shape.dims.begin(), shape.dims.begin() + shape.rank);
    parameters[name] = at::from_blob(at, sizes, at::kDouble).detach().clone().requires_grad_(true);
  });
  return parameters;
}

struct Oracle {
  const Architecture& a;
  const Parameters& p;
  double dropout = 0.0;
  std::uint64_t seed = 0;

  at::Tensor get(const std::string& name) const { return p.at(name); }

  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    if (a.norm == Architecture::Norm::kLayerNorm) {
      return at::layer_norm(x, {a.hidden}, get(name + ".weight"), get(name + ".bias"),
                            a.norm_epsilon);
    }
    return x * at::rsqrt(x.pow(2).mean(-1, true) + a.norm_epsilon) * get(name + ".weight");
  }

  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    const at::Tensor y = at::matmul(x, get(name + ".weight").t());
    const auto bias = p.find(name + ".bias");
    return bias == p.end() ? y : y + bias->second;
  }

  /// The mask of operator `op` of unit `unit` in step 0, micro-batch 0.
  at::Tensor drop(const at::Tensor& x, std::uint32_t unit, std::uint32_t op) const {
    if (dropout == 0.0) return x;
    const at::Tensor draws = at::empty(x.sizes(), at::kDouble);
    kernels::philox_uniform(draws.data_ptr<double>(), {seed, 0, unit * 64 + op}, 0,
                            {0, draws.numel()});
    return at::where(draws >= dropout, x / (1.0 - dropout), at::zeros_like(x));
  }

  at::Tensor attention(const std::string& block, const at::Tensor& x) const {
    at::Tensor qkv = linear(block + ".attention.qkv", x);
    if (a.position == Architecture::Position::kRope) {
      const std::int64_t turned = a.heads + a.kv_heads;
      const std::int64_t b = x.size(0), s = x.size(1);
      const at::Tensor heads =
          qkv.narrow(2, 0, turned * a.head_dim).reshape({b, s, turned, a.head_dim});
      qkv = at::cat({rotate(heads, a.rope_theta).reshape({b, s, turned * a.head_dim}),
                     qkv.narrow(2, turned * a.head_dim, a.kv_heads * a.head_dim)},
                    2);
    }
    return linear(block + ".attention.out", attend(qkv, a.heads, a.kv_heads, a.head_dim));
  }

  at::Tensor mlp(const std::string& block, const at::Tensor& x) const {
    if (a.activation == Architecture::Activation::kGelu) {
      return linear(block + ".mlp.down", at::gelu(linear(block + ".mlp.up", x), "tanh"));
    }
    const at::Tensor both = linear(block + ".mlp.gate_up", x);
    return linear(block + ".mlp.down",
                  at::silu(both.narrow(2, 0, a.ffn)) * both.narrow(2, a.ffn, a.ffn));
  }

  at::Tensor loss(const at::Tensor& ids, const at::Tensor& labels) const {
    at::Tensor x = at::embedding(get("embedding.weight"), ids);
    if (a.position == Architecture::Position::kLearned) {
      x = x + get("embedding.positions").narrow(0, 0, ids.size(1));
    }
    x = drop(x, 0, 1);
    for (std::int64_t layer = 0; layer < a.layers; ++layer) {
      const std::string block = "blocks." + std::to_string(layer);
      const auto unit = static_cast<std::uint32_t>(layer + 1);
      // Operators of a GPT-2 block: norm 0, qkv 1, attention 2, out 3, dropout 4, add 5, norm 6,
      // up 7, gelu 8, down 9, dropout 10. Rope moves them all by one.
      const std::uint32_t rope = a.position == Architecture::Position::kRope ? 1 : 0;
      x = x + drop(attention(block, norm(block + ".attention_norm", x)), unit, 4 + rope);
      x = x + drop(mlp(block, norm(block + ".mlp_norm", x)), unit, 10 + rope);
    }
    const at::Tensor weight = get(a.tied ? "embedding.weight" : "head.weight");
    const at::Tensor logits = at::matmul(norm("head.norm", x), weight.t());
    return at::cross_entropy_loss(logits.reshape({-1, a.vocab}), labels.reshape(-1), {},
                                  at::Reduction::Sum);
  }
};

struct ModelCase {
  std::string name;
  Architecture architecture;
  double dropout = 0.0;
};

class DeviceModel : public ::testing::TestWithParam<ModelCase> {};

DeviceRun make_run(const ModelCase& c, DType compute, int threads, bool split = false,
                   int micro_batches = 1) {
  Program program = one_rank_program(c.architecture, compute, c.dropout, micro_batches, threads);
  if (split) split_backwards(program);
  return DeviceRun(std::move(program), threads, tokens(97, 1), tokens(97, 2));
}

TEST_P(DeviceModel, LossAndEveryGradientEqualAutogradInFp64) {
  DeviceRun run = make_run(GetParam(), DType::kFp64, 2);
  run.run(ProgramKind::kLoad);
  const Parameters parameters = leaves(run);
  run.run(ProgramKind::kTrainStep, InstructionKind::kGradientNorm);

  const Oracle oracle{GetParam().architecture, parameters, GetParam().dropout,
                      run.program.job.seed};
  const auto ids = [](const std::vector<std::int32_t>& values) {
    return at::tensor(at::IntArrayRef(std::vector<std::int64_t>(values.begin(), values.end())))
        .reshape({2, 16});
  };
  const at::Tensor loss = oracle.loss(ids(run.ids), ids(run.labels));
  loss.backward();
  EXPECT_NEAR(run.scalars()[0] / loss.item<double>(), 1.0, 1e-12);
  int compared = 0;
  run.for_each_parameter(BufferRole::kGradients,
                         [&](const std::string& name, const Shape&, std::byte* at) {
                           const at::Tensor want = parameters.at(name).grad();
                           const at::Tensor have = at::from_blob(at, want.sizes(), at::kDouble);
                           EXPECT_LE(relative_error(have, want), 1e-10) << name;
                           ++compared;
                         });
  EXPECT_EQ(compared, static_cast<int>(parameters.size()));
}

TEST_P(DeviceModel, SplitBackwardEqualsFusedBitwise) {
  for (const DType type : {DType::kFp32, DType::kBf16, DType::kFp64}) {
    DeviceRun fused = make_run(GetParam(), type, 1, false, 2);
    DeviceRun split = make_run(GetParam(), type, 1, true, 2);
    for (DeviceRun* run : {&fused, &split}) {
      run->run(ProgramKind::kLoad);
      run->run(ProgramKind::kTrainStep, InstructionKind::kGradientNorm);
    }
    EXPECT_EQ(fused.bytes(BufferRole::kGradients), split.bytes(BufferRole::kGradients))
        << dtype_name(type);
  }
}

TEST_P(DeviceModel, ThreadsDoNotChangeABitOfAStep) {
  for (const DType type : {DType::kFp32, DType::kBf16, DType::kFp64}) {
    DeviceRun one = make_run(GetParam(), type, 1, false, 2);
    DeviceRun two = make_run(GetParam(), type, 2, false, 2);
    for (DeviceRun* run : {&one, &two}) {
      run->run(ProgramKind::kLoad);
      for (std::int64_t step = 0; step < 3; ++step) {
        run->run(ProgramKind::kTrainStep, InstructionKind::kEndStep, step);
      }
    }
    EXPECT_EQ(one.scalars()[0], two.scalars()[0]);
    for (const BufferRole role :
         {BufferRole::kParameters, BufferRole::kMoment1, BufferRole::kMoment2}) {
      EXPECT_EQ(one.bytes(role), two.bytes(role)) << dtype_name(type);
    }
  }
}

TEST_P(DeviceModel, EvaluationComputesTheSameLossWithoutDropout) {
  DeviceRun run = make_run(GetParam(), DType::kFp32, 1);
  run.run(ProgramKind::kLoad);
  run.run(ProgramKind::kTrainStep, InstructionKind::kGradientNorm);
  const double trained = run.scalars()[0];
  run.run(ProgramKind::kEvalStep);
  if (GetParam().dropout == 0.0) {
    EXPECT_EQ(run.scalars()[0], trained);
  } else {
    EXPECT_NE(run.scalars()[0], trained);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, DeviceModel,
                         ::testing::Values(ModelCase{"gpt2", tiny_gpt2(false), 0.0},
                                           ModelCase{"gpt2_tied", tiny_gpt2(true), 0.0},
                                           ModelCase{"gpt2_dropout", tiny_gpt2(false), 0.1},
                                           ModelCase{"llama", tiny_llama(false), 0.0},
                                           ModelCase{"llama_tied_dropout", tiny_llama(true), 0.2}),
                         [](const auto& test) { return test.param.name; });

// The same samples twice: twice the loss, exactly, and gradients that differ from twice those of
// one micro-batch only where rounding does.
TEST(DeviceModelAccumulation, MicroBatchesAdd) {
  const ModelCase model{"gpt2_tied", tiny_gpt2(true), 0.0};
  DeviceRun one = make_run(model, DType::kFp64, 1, false, 1);
  DeviceRun two = make_run(model, DType::kFp64, 1, false, 2);
  for (DeviceRun* run : {&one, &two}) {
    run->run(ProgramKind::kLoad);
    run->run(ProgramKind::kTrainStep, InstructionKind::kGradientNorm);
  }
  EXPECT_EQ(2.0 * one.scalars()[0], two.scalars()[0]);
  const auto gradients = [](const DeviceRun& run) {
    const std::vector<std::byte> bytes = run.bytes(BufferRole::kGradients);
    at::Tensor t =
        at::empty({static_cast<std::int64_t>(bytes.size() / sizeof(double))}, at::kDouble);
    std::memcpy(t.data_ptr(), bytes.data(), bytes.size());
    return t;
  };
  EXPECT_LE(relative_error(gradients(two), 2.0 * gradients(one)), 1e-13);
}

}  // namespace
}  // namespace bayplan::exec
