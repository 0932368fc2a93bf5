// The optimizers against torch's fused ones, in fp64 over several steps.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/optim.h"

namespace bayplan::kernels {
namespace {

constexpr std::int64_t kElements = 131;
constexpr int kSteps = 6;

struct Copies {
  at::Tensor p, m, v;

  explicit Copies(const at::Tensor& start)
      : p(start.clone()), m(at::zeros_like(start)), v(at::zeros_like(start)) {}
  double* data(const at::Tensor& x) const { return x.mutable_data_ptr<double>(); }
};

std::vector<at::Tensor> gradients() {
  at::manual_seed(3);
  std::vector<at::Tensor> all;
  for (int s = 0; s < kSteps; ++s) all.push_back(at::randn({kElements}, at::kDouble));
  return all;
}

void expect_equal(const at::Tensor& ours, const at::Tensor& torch) {
  EXPECT_LT((ours - torch).abs().max().item<double>(), 1e-12);
}

TEST(OptimizerAgainstTorch, AdamAddsItsDecayToTheGradient) {
  const Copies ours(at::randn({kElements}, at::kDouble)), torch(ours.p);
  AdamOptions options;
  options.weight_decay = 0.1;
  const double scale = 1.0;
  int step = 0;
  for (const at::Tensor& grad : gradients()) {
    ++step;
    options.bias_correction1 = adam_bias_correction(options.beta1, step);
    options.bias_correction2 = adam_bias_correction(options.beta2, step);
    adam_step(options, &scale, grad.const_data_ptr<double>(), ours.data(ours.p), ours.data(ours.m),
              ours.data(ours.v), Range{0, kElements});
    at::_fused_adam_({torch.p}, {grad}, {torch.m}, {torch.v}, {},
                     {at::full({}, static_cast<double>(step), at::kFloat)}, options.lr,
                     options.beta1, options.beta2, options.weight_decay, options.eps,
                     /*amsgrad=*/false, /*maximize=*/false);
    expect_equal(ours.p, torch.p);
    expect_equal(ours.m, torch.m);
    expect_equal(ours.v, torch.v);
  }
}

TEST(OptimizerAgainstTorch, SgdWithAndWithoutMomentum) {
  for (const double momentum : {0.0, 0.9}) {
    const Copies ours(at::randn({kElements}, at::kDouble)), torch(ours.p);
    const SgdOptions options{0.01, momentum, 0.1};
    const double scale = 1.0;
    bool first = true;
    for (const at::Tensor& grad : gradients()) {
      sgd_step(options, &scale, grad.const_data_ptr<double>(), ours.data(ours.p),
               momentum > 0.0 ? ours.data(ours.m) : nullptr, Range{0, kElements});
      const std::vector<at::Tensor> buffers =
          momentum > 0.0 ? std::vector<at::Tensor>{torch.m} : std::vector<at::Tensor>{};
      at::_fused_sgd_({torch.p}, {grad}, buffers, options.weight_decay, momentum, options.lr,
                      /*dampening=*/0.0, /*nesterov=*/false, /*maximize=*/false, first);
      first = false;
      expect_equal(ours.p, torch.p);
      expect_equal(ours.m, torch.m);
    }
  }
}

}  // namespace
}  // namespace bayplan::kernels
