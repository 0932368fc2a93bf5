#include "models/build_model.h"

#include <cmath>
#include <utility>

#include "models/unit_builder.h"
#include "planner/core/check.h"

namespace bayplan {
namespace {

constexpr const char* kTiedWeight = "embedding.weight";

Error bad_field(const std::string& field, const std::string& message, const std::string& hint) {
  return Error{"bad-architecture", message, "model." + field, hint};
}

std::int32_t add_norm(UnitBuilder& unit, const Architecture& a, const std::string& name,
                      std::int32_t x) {
  OperatorAttributes attributes;
  attributes.out_features = a.hidden;
  attributes.epsilon = a.norm_epsilon;
  if (a.norm == Architecture::Norm::kLayerNorm) {
    attributes.bias = true;
    return unit.add(OperatorKind::kLayerNorm, name, name + ".", name, {x}, {"mean", "rstd"},
                    attributes);
  }
  return unit.add(OperatorKind::kRmsNorm, name, name + ".", name, {x}, {"rstd"}, attributes);
}

std::int32_t add_linear(UnitBuilder& unit, const std::string& name, std::int32_t x, std::int64_t in,
                        std::int64_t out, bool bias, double init_std) {
  OperatorAttributes attributes;
  attributes.in_features = in;
  attributes.out_features = out;
  attributes.bias = bias;
  attributes.init_std = init_std;
  return unit.add(OperatorKind::kLinear, name, name + ".", name, {x}, {}, attributes);
}

std::int32_t add_dropout(UnitBuilder& unit, const std::string& name, std::int32_t x, bool dropout) {
  return dropout ? unit.add(OperatorKind::kDropout, name, "", name, {x}, {}, {}) : x;
}

UnitClass build_embedding(const Architecture& a, bool dropout) {
  UnitBuilder unit(UnitKind::kEmbedding);
  const std::int32_t tokens = unit.external_input("tokens", ExternalInput::kTokens);
  OperatorAttributes attributes;
  attributes.vocab = a.vocab;
  attributes.out_features = a.hidden;
  attributes.positions = a.position == Architecture::Position::kLearned ? a.max_seq : 0;
  attributes.init_std = a.init_std;
  const std::int32_t x =
      unit.add(OperatorKind::kEmbedding, "embedding", "", "embedding", {tokens}, {}, attributes);
  if (a.tied) unit.tie("weight", kTiedWeight);
  unit.boundary_output(add_dropout(unit, "dropout", x, dropout));
  return unit.take();
}

std::int32_t add_attention(UnitBuilder& unit, const Architecture& a, std::int32_t x,
                           double residual_std) {
  OperatorAttributes heads;
  heads.heads = a.heads;
  heads.kv_heads = a.kv_heads;
  heads.head_dim = a.head_dim;
  heads.theta = a.rope_theta;
  std::int32_t qkv = add_linear(unit, "attention.qkv", x, a.hidden,
                                (a.heads + 2 * a.kv_heads) * a.head_dim, a.qkv_bias, a.init_std);
  if (a.position == Architecture::Position::kRope) {
    qkv = unit.add(OperatorKind::kRope, "attention.rope", "", "attention.rope", {qkv}, {}, heads);
  }
  const std::int32_t o =
      unit.add(OperatorKind::kAttention, "attention", "", "attention", {qkv}, {"lse"}, heads);
  return add_linear(unit, "attention.out", o, a.heads * a.head_dim, a.hidden, a.attention_out_bias,
                    residual_std);
}

std::int32_t add_mlp(UnitBuilder& unit, const Architecture& a, std::int32_t x,
                     double residual_std) {
  std::int32_t y = 0;
  if (a.activation == Architecture::Activation::kSwiglu) {
    y = add_linear(unit, "mlp.gate_up", x, a.hidden, 2 * a.ffn, a.mlp_bias, a.init_std);
    y = unit.add(OperatorKind::kSwiglu, "mlp.swiglu", "", "mlp.swiglu", {y}, {}, {});
  } else {
    y = add_linear(unit, "mlp.up", x, a.hidden, a.ffn, a.mlp_bias, a.init_std);
    y = unit.add(OperatorKind::kGelu, "mlp.gelu", "", "mlp.gelu", {y}, {}, {});
  }
  return add_linear(unit, "mlp.down", y, a.ffn, a.hidden, a.mlp_bias, residual_std);
}

UnitClass build_block(const Architecture& a, bool dropout) {
  // GPT-2 scales the 2L projections that add to the residual stream, so that its variance does
  // not grow with depth (Radford et al. 2019, section 2.3).
  const double residual_std = a.init_std / std::sqrt(2.0 * static_cast<double>(a.layers));
  UnitBuilder unit(UnitKind::kBlock);
  const std::int32_t x = unit.boundary_input("x");
  std::int32_t branch =
      add_attention(unit, a, add_norm(unit, a, "attention_norm", x), residual_std);
  branch = add_dropout(unit, "attention.dropout", branch, dropout);
  const std::int32_t middle = unit.add(OperatorKind::kResidualAdd, "attention.residual", "",
                                       "attention.residual", {x, branch}, {}, {});
  branch = add_mlp(unit, a, add_norm(unit, a, "mlp_norm", middle), residual_std);
  branch = add_dropout(unit, "mlp.dropout", branch, dropout);
  unit.boundary_output(unit.add(OperatorKind::kResidualAdd, "mlp.residual", "", "mlp.residual",
                                {middle, branch}, {}, {}));
  return unit.take();
}

UnitClass build_head(const Architecture& a) {
  UnitBuilder unit(UnitKind::kHead);
  const std::int32_t x = unit.boundary_input("x");
  const std::int32_t labels = unit.external_input("labels", ExternalInput::kLabels);
  OperatorAttributes attributes;
  attributes.in_features = a.hidden;
  attributes.out_features = a.vocab;
  attributes.vocab = a.vocab;
  attributes.init_std = a.init_std;
  const std::int32_t loss =
      unit.add(OperatorKind::kLmHeadLoss, "lm_head", "", "loss",
               {add_norm(unit, a, "norm", x), labels}, {"logits", "lse"}, attributes);
  if (a.tied) unit.tie("weight", kTiedWeight);
  unit.loss(loss);
  return unit.take();
}

}  // namespace

Status check_architecture(const Architecture& a) {
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"layers", a.layers},     {"hidden", a.hidden}, {"heads", a.heads}, {"kv_heads", a.kv_heads},
      {"head_dim", a.head_dim}, {"ffn", a.ffn},       {"vocab", a.vocab}, {"max_seq", a.max_seq}};
  // Products of three sizes stay far from the range of a 64-bit count.
  constexpr std::int64_t kLargest = std::int64_t{1} << 30;
  for (const auto& [field, value] : sizes) {
    if (value <= 0 || value > kLargest) {
      return bad_field(field, std::string(field) + " is " + std::to_string(value),
                       "give a size from 1 to 2^30");
    }
  }
  if (a.heads % a.kv_heads != 0) {
    return bad_field("kv_heads",
                     std::to_string(a.kv_heads) + " key/value heads do not divide " +
                         std::to_string(a.heads) + " heads",
                     "give a divisor of heads");
  }
  if (a.position == Architecture::Position::kRope && a.head_dim % 2 != 0) {
    return bad_field("head_dim", "rope rotates pairs, head_dim is " + std::to_string(a.head_dim),
                     "give an even head_dim");
  }
  if (a.qk_norm) {
    return bad_field("qk_norm", "normalised queries and keys are not implemented",
                     "use a model without qk_norm");
  }
  if (!(a.norm_epsilon > 0.0) || !(a.init_std >= 0.0) || !(a.rope_theta > 0.0)) {
    return bad_field(!(a.norm_epsilon > 0.0) ? "norm_epsilon"
                     : !(a.init_std >= 0.0)  ? "init_std"
                                             : "rope_theta",
                     "not a positive number", "give a positive number");
  }
  return {};
}

ModelGraph build_model(const Architecture& a, bool dropout) {
  if (const Status status = check_architecture(a); !status) {
    BAYPLAN_CHECK(false, status.error().message);
  }
  ModelGraph graph;
  graph.architecture = a;
  graph.classes = {build_embedding(a, dropout), build_block(a, dropout), build_head(a)};
  graph.units.push_back(Unit{0, "embedding", {}});
  for (std::int64_t layer = 0; layer < a.layers; ++layer) {
    graph.units.push_back(Unit{1,
                               "blocks." + std::to_string(layer),
                               {BoundarySource{UnitId(static_cast<std::int32_t>(layer)), 0}}});
  }
  graph.units.push_back(
      Unit{2, "head", {BoundarySource{UnitId(static_cast<std::int32_t>(a.layers)), 0}}});
  return graph;
}

}  // namespace bayplan
