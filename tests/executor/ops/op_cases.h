// Every operator kind at small and odd sizes, each with the same function written in plain ATen,
// whose autograd is the oracle.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/philox.h"
#include "tests/executor/ops/op_harness.h"

namespace bayplan::exec {

using Tensors = std::vector<at::Tensor>;

struct OpCase {
  std::string name;
  std::function<OpHarness(DType)> make;
  /// fp64 inputs and parameters -> output.
  std::function<at::Tensor(const Tensors& inputs, const Tensors& parameters)> oracle;
};

inline TensorShape compute_shape(Shape shape) { return {shape, ElementClass::kCompute}; }
inline TensorShape index_shape(Shape shape) { return {shape, ElementClass::kIndex}; }

inline OpCase linear_case(std::string name, std::int64_t b, std::int64_t s, std::int64_t in,
                          std::int64_t out, bool bias) {
  OperatorAttributes a;
  a.in_features = in, a.out_features = out, a.bias = bias;
  return {std::move(name),
          [=](DType type) {
            return OpHarness(OperatorKind::kLinear, a, {compute_shape({b, s, in})}, {b, s}, type);
          },
          [=](const Tensors& x, const Tensors& p) {
            const at::Tensor y = at::matmul(x[0], p[0].t());
            return bias ? y + p[1] : y;
          }};
}

inline OpCase norm_case(std::string name, bool layer, std::int64_t width) {
  OperatorAttributes a;
  a.out_features = width, a.epsilon = 1e-5, a.bias = layer;
  return {std::move(name),
          [=](DType type) {
            return OpHarness(layer ? OperatorKind::kLayerNorm : OperatorKind::kRmsNorm, a,
                             {compute_shape({2, 5, width})}, {2, 5}, type);
          },
          [=](const Tensors& x, const Tensors& p) {
            if (layer) return at::layer_norm(x[0], {width}, p[0], p[1], 1e-5);
            return x[0] * at::rsqrt(x[0].pow(2).mean(-1, true) + 1e-5) * p[0];
          }};
}

/// The rotate-half form on [.., heads, d].
inline at::Tensor rotate(const at::Tensor& x, double theta) {
  const std::int64_t s = x.size(1), d = x.size(3);
  const at::Tensor inverse = at::pow(theta, at::arange(0, d, 2, at::kDouble) / -double(d));
  const at::Tensor angle = at::outer(at::arange(s, at::kDouble), inverse).view({1, s, 1, d / 2});
  const at::Tensor low = x.narrow(3, 0, d / 2), high = x.narrow(3, d / 2, d / 2);
  return at::cat({low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()},
                 3);
}

inline OperatorAttributes heads_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t d) {
  OperatorAttributes a;
  a.heads = heads, a.kv_heads = kv_heads, a.head_dim = d, a.theta = 500.0;
  return a;
}

inline OpCase rope_case() {
  const std::int64_t b = 2, s = 7, heads = 3, kv = 1, d = 6, width = (heads + 2 * kv) * d;
  return {"rope",
          [=](DType type) {
            return OpHarness(OperatorKind::kRope, heads_of(heads, kv, d),
                             {compute_shape({b, s, width})}, {b, s}, type);
          },
          [=](const Tensors& x, const Tensors&) {
            const at::Tensor turned =
                rotate(x[0].narrow(2, 0, (heads + kv) * d).reshape({b, s, heads + kv, d}), 500.0);
            return at::cat({turned.reshape({b, s, (heads + kv) * d}),
                            x[0].narrow(2, (heads + kv) * d, kv * d)},
                           2);
          }};
}

inline at::Tensor attend(const at::Tensor& packed, std::int64_t heads, std::int64_t kv,
                         std::int64_t d) {
  const std::int64_t b = packed.size(0), s = packed.size(1);
  const auto part = [&](std::int64_t first, std::int64_t n) {
    return packed.narrow(2, first * d, n * d).reshape({b, s, n, d}).transpose(1, 2);
  };
  const at::Tensor q = part(0, heads);
  const at::Tensor k = part(heads, kv).repeat_interleave(heads / kv, 1);
  const at::Tensor v = part(heads + kv, kv).repeat_interleave(heads / kv, 1);
  const at::Tensor later = at::ones({s, s}, at::kBool).triu(1);
  const at::Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(double(d));
  return at::matmul(at::softmax(scores.masked_fill(later, -INFINITY), -1), v)
      .transpose(1, 2)
      .reshape({b, s, heads * d});
}

inline OpCase attention_case(std::string name, std::int64_t b, std::int64_t s, std::int64_t heads,
                             std::int64_t kv, std::int64_t d) {
  return {std::move(name),
          [=](DType type) {
            return OpHarness(OperatorKind::kAttention, heads_of(heads, kv, d),
                             {compute_shape({b, s, (heads + 2 * kv) * d})}, {b, s}, type);
          },
          [=](const Tensors& x, const Tensors&) { return attend(x[0], heads, kv, d); }};
}

inline std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  for (const bool positions : {false, true}) {
    OperatorAttributes a;
    a.vocab = 13, a.out_features = 10, a.positions = positions ? 9 : 0;
    cases.push_back(
        {positions ? "embedding_positions" : "embedding",
         [=](DType type) {
           return OpHarness(OperatorKind::kEmbedding, a, {index_shape({3, 7})}, {3, 7}, type, 13);
         },
         [=](const Tensors& x, const Tensors& p) {
           const at::Tensor e = at::embedding(p[0], x[0].to(at::kLong));
           return positions ? e + p[1].narrow(0, 0, 7) : e;
         }});
  }
  cases.push_back(linear_case("linear", 2, 5, 6, 9, false));
  cases.push_back(linear_case("linear_bias", 2, 33, 48, 97, true));
  cases.push_back(linear_case("linear_tiled_rows", 4, 160, 72, 130, true));
  cases.push_back(linear_case("linear_tiled_columns", 1, 130, 64, 520, true));
  cases.push_back(norm_case("layer_norm", true, 37));
  cases.push_back(norm_case("rms_norm", false, 37));
  cases.push_back(rope_case());
  cases.push_back(attention_case("attention", 2, 9, 2, 2, 8));
  cases.push_back(attention_case("attention_blocks", 1, 150, 2, 2, 16));
  cases.push_back(attention_case("attention_grouped", 2, 70, 6, 2, 10));

  cases.push_back(
      {"gelu",
       [](DType type) {
         return OpHarness(OperatorKind::kGelu, {}, {compute_shape({2, 3, 35})}, {2, 3}, type);
       },
       [](const Tensors& x, const Tensors&) { return at::gelu(x[0], "tanh"); }});
  cases.push_back(
      {"swiglu",
       [](DType type) {
         return OpHarness(OperatorKind::kSwiglu, {}, {compute_shape({2, 3, 38})}, {2, 3}, type);
       },
       [](const Tensors& x, const Tensors&) {
         return at::silu(x[0].narrow(2, 0, 19)) * x[0].narrow(2, 19, 19);
       }});
  cases.push_back({"residual_add",
                   [](DType type) {
                     const TensorShape shape = compute_shape({2, 3, 35});
                     return OpHarness(OperatorKind::kResidualAdd, {}, {shape, shape}, {2, 3}, type);
                   },
                   [](const Tensors& x, const Tensors&) { return x[0] + x[1]; }});
  cases.push_back(
      {"dropout",
       [](DType type) {
         OpHarness harness(OperatorKind::kDropout, {}, {compute_shape({2, 3, 35})}, {2, 3}, type);
         harness.random_numbers() = {7, 3, 65, 1000, 0.25};
         return harness;
       },
       [](const Tensors& x, const Tensors&) {
         const at::Tensor draws = at::empty({2, 3, 35}, at::kDouble);
         kernels::philox_uniform(draws.data_ptr<double>(), {7, 3, 65}, 1000, {0, draws.numel()});
         return at::where(draws >= 0.25, x[0] / 0.75, at::zeros_like(x[0]));
       }});
  OperatorAttributes head;
  head.in_features = 20, head.out_features = head.vocab = 97;
  cases.push_back({"lm_head_loss",
                   [=](DType type) {
                     return OpHarness(OperatorKind::kLmHeadLoss, head,
                                      {compute_shape({3, 11, 20}), index_shape({3, 11})}, {3, 11},
                                      type, 97);
                   },
                   [](const Tensors& x, const Tensors& p) {
                     const at::Tensor logits = at::matmul(x[0], p[0].t()).reshape({33, 97});
                     return at::cross_entropy_loss(logits, x[1].to(at::kLong).reshape(-1), {},
                                                   at::Reduction::Sum);
                   }});
  return cases;
}

}  // namespace bayplan::exec
