// Claims about every operator: values and gradients equal torch autograd's, nothing depends on
// the thread count, and the declared workspace is enough.
#include <gtest/gtest.h>

#include "tests/executor/ops/op_cases.h"

namespace bayplan::exec {
namespace {

class Operators : public ::testing::TestWithParam<OpCase> {};

struct Expected {
  at::Tensor output;
  Tensors input_gradients, parameter_gradients;
};

/// In fp64, of the values that the harness holds (rounded already when it holds bf16).
Expected autograd(const OpCase& c, const OpHarness& harness) {
  const auto leaf = [](const at::Tensor& t) {
    if (t.scalar_type() == at::kInt) return t;
    return t.to(at::kDouble).detach().clone().requires_grad_(true);
  };
  Tensors inputs, parameters;
  for (const at::Tensor& x : harness.inputs()) inputs.push_back(leaf(x));
  for (const at::Tensor& p : harness.parameters()) parameters.push_back(leaf(p));
  const at::Tensor output = c.oracle(inputs, parameters);
  const at::Tensor& gradient = harness.output_gradients()[0];
  output.backward(gradient.defined() ? gradient.to(at::kDouble).view(output.sizes())
                                     : at::ones_like(output));
  Expected expected{output.detach(), {}, {}};
  for (const at::Tensor& x : inputs) {
    expected.input_gradients.push_back(x.scalar_type() == at::kInt ? at::Tensor() : x.grad());
  }
  for (const at::Tensor& p : parameters) expected.parameter_gradients.push_back(p.grad());
  return expected;
}

void expect_close(const OpCase& c, DType type, double tolerance, bool add) {
  OpHarness harness = c.make(type);
  const OpResults actual = harness.run(2, add);
  const Expected expected = autograd(c, harness);
  EXPECT_LE(relative_error(actual.outputs[0], expected.output), tolerance) << "output";
  for (std::size_t i = 0; i < actual.input_gradients.size(); ++i) {
    if (!actual.input_gradients[i].defined()) continue;
    at::Tensor want = expected.input_gradients[i];
    if (add) want = want + harness.residuals()[i].to(at::kDouble);
    EXPECT_LE(relative_error(actual.input_gradients[i], want), tolerance) << "input " << i;
  }
  for (std::size_t i = 0; i < actual.parameter_gradients.size(); ++i) {
    const at::Tensor want =
        expected.parameter_gradients[i] + harness.first_gradients()[i].to(at::kDouble);
    EXPECT_LE(relative_error(actual.parameter_gradients[i], want), tolerance) << "parameter " << i;
  }
}

TEST_P(Operators, GradientsEqualAutogradInFp64) {
  expect_close(GetParam(), DType::kFp64, 1e-10, false);
}

TEST_P(Operators, GradientsAreAddedToAResidual) {
  expect_close(GetParam(), DType::kFp64, 1e-10, true);
}

// fp32 rounds at 6e-8; sums here have at most 130 terms of similar size.
TEST_P(Operators, Fp32IsCloseToFp64) { expect_close(GetParam(), DType::kFp32, 1e-5, false); }

// bf16 rounds at 2^-9; an operator rounds its result and, between phases, one intermediate.
TEST_P(Operators, Bf16IsCloseToFp64) { expect_close(GetParam(), DType::kBf16, 2e-2, true); }

TEST_P(Operators, ThreadsDoNotChangeABit) {
  for (const DType type : {DType::kFp32, DType::kBf16, DType::kFp64}) {
    OpHarness harness = GetParam().make(type);
    const OpResults one = harness.run(1);
    EXPECT_TRUE(bitwise_equal(one, harness.run(2))) << dtype_name(type);
    EXPECT_TRUE(bitwise_equal(one, harness.run(5))) << dtype_name(type);
  }
}

TEST_P(Operators, DeclaredWorkspaceIsEnough) {
  for (const DType type : {DType::kFp32, DType::kBf16, DType::kFp64}) {
    for (const int threads : {1, 2, 5}) {
      OpHarness harness = GetParam().make(type);
      EXPECT_NO_THROW(harness.run(threads, true, true)) << dtype_name(type) << " " << threads;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Operators, ::testing::ValuesIn(op_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace bayplan::exec
