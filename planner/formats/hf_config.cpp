#include "planner/formats/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace bayplan {
namespace {

constexpr std::int64_t kMostHidden = std::int64_t{1} << 20;
constexpr std::int64_t kMostLayers = 1 << 14;
constexpr std::int64_t kMostHeads = 1 << 16;
constexpr std::int64_t kMostVocab = std::int64_t{1} << 26;
constexpr std::int64_t kMostSeq = std::int64_t{1} << 24;

/// Fields of a config.json with the defaults that the family's code has. Unlike our own formats a
/// config carries many fields that say nothing about shapes, so unknown ones are not refused;
/// remembers the first error like ObjectReader.
class ConfigReader {
 public:
  explicit ConfigReader(const JsonCursor& at) : at_(at) {}

  bool given(std::string_view name) const { return at_.has(name) && !at_.at(name).is_null(); }

  /// The first of `names` that is given and not null.
  void count(std::initializer_list<std::string_view> names, std::int64_t most, std::int64_t& out,
             bool required = true) {
    for (const std::string_view name : names) {
      if (!given(name)) continue;
      return keep(at_.at(name).integer(1, most), out);
    }
    if (!required) return;
    std::string others;
    for (const std::string& field : at_.field_names())
      others += (others.empty() ? "" : ", ") + field;
    fail(at_.error(
        "missing-field", fmt::format("field '{}' is missing", *names.begin()),
        others.empty() ? "the object is empty" : "the file has: " + others.substr(0, 400)));
  }
  void number(std::string_view name, double least, double most, double& out) {
    if (given(name)) keep(at_.at(name).number(least, most), out);
  }
  void flag(std::string_view name, bool& out) {
    if (given(name)) keep(at_.at(name).boolean(), out);
  }
  /// Refuses any value but `wanted`, which is also the default.
  void only(std::string_view name, bool wanted) {
    bool value = wanted;
    flag(name, value);
    if (value != wanted) unsupported(name, value ? "true" : "false");
  }
  void only(std::string_view name, const std::vector<std::string>& wanted) {
    if (!given(name)) return;
    const auto value = at_.at(name).string();
    if (!value) return fail(value.error());
    if (std::find(wanted.begin(), wanted.end(), *value) == wanted.end()) unsupported(name, *value);
  }
  void absent(std::string_view name) {
    if (given(name)) unsupported(name, "given");
  }
  const JsonCursor& at() const { return at_; }
  void fail(Error error) {
    if (status_.ok()) status_ = std::move(error);
  }
  const Status& status() const { return status_; }

 private:
  template <class T>
  void keep(const Result<T>& value, T& out) {
    if (value) {
      out = *value;
    } else {
      fail(value.error());
    }
  }
  void unsupported(std::string_view name, std::string_view value) {
    fail(at_.error("unsupported",
                   fmt::format("'{}' ({}) is not modelled", name, value.substr(0, 60)),
                   "the model cannot be planned or run with this setting"));
  }

  JsonCursor at_;
  Status status_;
};

/// Heads of tasks other than next-token prediction have other last layers.
void check_task(ConfigReader& r, const std::string& wanted) {
  if (!r.given("architectures")) return;
  const auto names = r.at().at("architectures").elements();
  if (!names) return r.fail(names.error());
  for (const JsonCursor& name : *names) {
    const auto text = name.string();
    if (!text) return r.fail(text.error());
    if (*text != wanted) {
      return r.fail(name.error("unsupported",
                               fmt::format("'{}' is not modelled", text->substr(0, 60)),
                               fmt::format("supported: {}", wanted)));
    }
  }
}

void read_gpt2(ConfigReader& r, ModelDescription& model) {
  Architecture& a = model.architecture;
  a.family = "gpt2";
  check_task(r, "GPT2LMHeadModel");
  r.count({"n_layer", "num_hidden_layers"}, kMostLayers, a.layers);
  r.count({"n_embd", "hidden_size"}, kMostHidden, a.hidden);
  r.count({"n_head", "num_attention_heads"}, kMostHeads, a.heads);
  a.vocab = 50257;
  a.max_seq = 1024;
  a.ffn = 4 * a.hidden;
  r.count({"vocab_size"}, kMostVocab, a.vocab, false);
  r.count({"n_positions", "n_ctx", "max_position_embeddings"}, kMostSeq, a.max_seq, false);
  r.count({"n_inner"}, kMostHidden * 8, a.ffn, false);
  a.kv_heads = a.heads;
  a.head_dim = a.heads > 0 ? a.hidden / a.heads : 0;
  a.norm_epsilon = 1e-5;
  r.number("layer_norm_epsilon", 0.0, 1.0, a.norm_epsilon);
  r.number("initializer_range", 0.0, 10.0, a.init_std);
  a.tied = true;
  r.flag("tie_word_embeddings", a.tied);
  r.only("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  r.only("scale_attn_weights", true);
  r.only("scale_attn_by_inverse_layer_idx", false);
  r.only("reorder_and_upcast_attn", false);
  r.only("add_cross_attention", false);
  if (r.status().ok() && a.hidden % a.heads != 0) {
    r.fail(r.at().error("bad-shape",
                        fmt::format("{} heads do not divide the hidden size {}", a.heads, a.hidden),
                        "n_embd must be a multiple of n_head"));
  }
}

/// What llama, mistral and qwen2 configurations share.
void read_llama_like(ConfigReader& r, ModelDescription& model) {
  Architecture& a = model.architecture;
  a.family = "llama";
  a.norm = Architecture::Norm::kRmsNorm;
  a.position = Architecture::Position::kRope;
  a.activation = Architecture::Activation::kSwiglu;
  a.qkv_bias = a.attention_out_bias = a.mlp_bias = false;
  r.count({"num_hidden_layers"}, kMostLayers, a.layers);
  r.count({"hidden_size"}, kMostHidden, a.hidden);
  r.count({"num_attention_heads"}, kMostHeads, a.heads);
  r.count({"intermediate_size"}, kMostHidden * 8, a.ffn);
  r.count({"vocab_size"}, kMostVocab, a.vocab);
  a.kv_heads = a.heads;
  r.count({"num_key_value_heads"}, kMostHeads, a.kv_heads, false);
  a.max_seq = 2048;
  r.count({"max_position_embeddings", "max_sequence_length"}, kMostSeq, a.max_seq, false);
  a.head_dim = a.heads > 0 ? a.hidden / a.heads : 0;
  if (r.given("head_dim")) {
    r.count({"head_dim"}, kMostHidden, a.head_dim);
  } else if (r.status().ok() && a.hidden % a.heads != 0) {
    r.fail(r.at().error(
        "bad-shape", fmt::format("{} heads do not divide the hidden size {}", a.heads, a.hidden),
        "hidden_size must be a multiple of num_attention_heads, or head_dim given"));
  }
  a.norm_epsilon = 1e-6;
  r.number("rms_norm_eps", 0.0, 1.0, a.norm_epsilon);
  r.number("rope_theta", 1.0, 1e12, a.rope_theta);
  r.number("initializer_range", 0.0, 10.0, a.init_std);
  a.tied = false;
  r.flag("tie_word_embeddings", a.tied);
  r.only("hidden_act", {"silu", "swish"});
  r.absent("quantization_config");
  double rotated = 1.0;
  r.number("partial_rotary_factor", 1.0, 1.0, rotated);
  if (r.given("rope_scaling")) model.not_executed.push_back("rope_scaling");
}

void read_llama(ConfigReader& r, ModelDescription& model) {
  check_task(r, "LlamaForCausalLM");
  read_llama_like(r, model);
  r.flag("attention_bias", model.architecture.qkv_bias);
  model.architecture.attention_out_bias = model.architecture.qkv_bias;
  r.flag("mlp_bias", model.architecture.mlp_bias);
}

void read_mistral(ConfigReader& r, ModelDescription& model) {
  check_task(r, "MistralForCausalLM");
  read_llama_like(r, model);
  r.only("attention_bias", false);
  // The family's default, which a config without the field has, is a window of 4096.
  model.attention_window = r.at().has("sliding_window") ? 0 : 4096;
  r.count({"sliding_window"}, kMostSeq, model.attention_window, false);
}

void read_qwen2(ConfigReader& r, ModelDescription& model) {
  check_task(r, "Qwen2ForCausalLM");
  read_llama_like(r, model);
  model.architecture.qkv_bias = true;
  bool window = false;
  r.flag("use_sliding_window", window);
  if (window) r.count({"sliding_window"}, kMostSeq, model.attention_window);
}

struct Family {
  std::string model_type;
  void (*read)(ConfigReader&, ModelDescription&);
};

const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {"gpt2", read_gpt2}, {"llama", read_llama}, {"mistral", read_mistral}, {"qwen2", read_qwen2}};
  return table;
}

}  // namespace

const std::vector<std::string>& supported_families() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Family& family : families()) out.push_back(family.model_type);
    return out;
  }();
  return names;
}

Result<ModelDescription> read_hf_config(const JsonCursor& at, const std::string& name) {
  BAYPLAN_RETURN_IF_ERROR(at.expect_object());
  const std::string known =
      fmt::format("supported model_type: {}", fmt::join(supported_families(), ", "));
  if (!at.has("model_type"))
    return at.error("missing-field", "field 'model_type' is missing", known);
  BAYPLAN_TRY(model_type, at.at("model_type").string());
  for (const Family& family : families()) {
    if (family.model_type != model_type) continue;
    ModelDescription model;
    model.architecture.name = name;
    ConfigReader reader(at);
    family.read(reader, model);
    BAYPLAN_RETURN_IF_ERROR(reader.status());
    BAYPLAN_RETURN_IF_ERROR(check_shape_limits(model.architecture, at.where()));
    return model;
  }
  return at.at("model_type")
      .error("unsupported-family",
             fmt::format("the model family '{}' is not modelled", model_type.substr(0, 60)), known);
}

Status check_shape_limits(const Architecture& a, const std::string& where) {
  const auto bad = [&](std::string message, std::string hint) {
    return Status(Error{"bad-shape", std::move(message), where, std::move(hint)});
  };
  const struct {
    std::string_view name;
    std::int64_t value;
    std::int64_t most;
  } sizes[] = {{"layers", a.layers, kMostLayers},     {"hidden", a.hidden, kMostHidden},
               {"heads", a.heads, kMostHeads},        {"kv_heads", a.kv_heads, kMostHeads},
               {"head_dim", a.head_dim, kMostHidden}, {"ffn", a.ffn, kMostHidden * 8},
               {"vocab", a.vocab, kMostVocab},        {"seq", a.max_seq, kMostSeq}};
  for (const auto& size : sizes) {
    if (size.value < 1 || size.value > size.most) {
      return Status(Error{"out-of-range", fmt::format("{} is {}", size.name, size.value), where,
                          fmt::format("write 1 to {}", size.most)});
    }
  }
  if (a.heads % a.kv_heads != 0) {
    return bad(fmt::format("{} key-value heads do not divide {} heads", a.kv_heads, a.heads),
               "kv_heads must divide heads");
  }
  if (a.heads * a.head_dim > kMostHidden * 8) {
    return bad(fmt::format("{} heads of {} are too wide", a.heads, a.head_dim),
               "use smaller heads");
  }
  if (a.position == Architecture::Position::kRope && a.head_dim % 2 != 0) {
    return bad(fmt::format("the head size {} is odd", a.head_dim),
               "rotary positions rotate pairs of elements");
  }
  return {};
}

}  // namespace bayplan
