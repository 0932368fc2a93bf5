#include "models/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "models/build_model.h"
#include "models/preset_names.h"
#include "planner/formats/json_cursor.h"
#include "planner/formats/nearest.h"

namespace bayplan {
namespace {

constexpr std::string_view kPresetFolder = "models/presets/";
constexpr std::int64_t kDefaultSeq = 1024;

Result<JsonCursor> preset_field(const EmbeddedFile& file, std::string_view field) {
  BAYPLAN_TRY(document, parse_json(file.text, std::string(file.path)));
  const JsonCursor at(document);
  if (!at.has(field)) return at.error("missing-field", fmt::format("field '{}' is missing", field));
  return at.at(field);
}

Result<ModelDescription> read_config_file(const std::string& given) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(given, ignored);
  const std::string path = folder ? (std::filesystem::path(given) / "config.json").string() : given;
  BAYPLAN_TRY(document, read_json_file(path));
  const JsonCursor at(document);
  if (at.has("schema")) {
    const auto schema = at.at("schema").string();
    return at.at("schema").error(
        "not-a-model",
        fmt::format("'{}' is no model description", schema ? *schema : std::string("this file")),
        "MODEL is a Hugging Face config.json, a preset or a shape (gpt:…, llama:…)");
  }
  return read_hf_config(at, given);
}

// ---- plain shapes
// --------------------------------------------------------------------------------

Error bad_shape(std::string_view text, std::string message, std::string hint) {
  return Error{"bad-shape", std::move(message), fmt::format("MODEL '{}'", text.substr(0, 120)),
               std::move(hint)};
}

const std::vector<std::string> kShapeKeys = {"hidden", "layers", "heads", "kv_heads",
                                             "ffn",    "vocab",  "seq",   "tied"};

Result<std::map<std::string, std::string>> split_shape(std::string_view text,
                                                       std::string_view list) {
  std::map<std::string, std::string> values;
  std::size_t begin = 0;
  while (begin <= list.size()) {
    const std::size_t comma = std::min(list.find(',', begin), list.size());
    const std::string_view item = list.substr(begin, comma - begin);
    begin = comma + 1;
    const std::size_t equals = item.find('=');
    const std::string key(item.substr(0, equals));
    if (equals == std::string_view::npos || equals + 1 == item.size()) {
      return bad_shape(text, fmt::format("'{}' is not KEY=VALUE", item.substr(0, 40)),
                       "write gpt:hidden=1024,layers=24,heads=16");
    }
    if (std::find(kShapeKeys.begin(), kShapeKeys.end(), key) == kShapeKeys.end()) {
      return Error{"unknown-field", fmt::format("a shape has no '{}'", key.substr(0, 40)),
                   fmt::format("MODEL '{}'", text.substr(0, 120)),
                   fmt::format("nearest: '{}'; known: {}", nearest_name(key, kShapeKeys),
                               fmt::join(kShapeKeys, ", "))};
    }
    if (!values.emplace(key, item.substr(equals + 1)).second) {
      return bad_shape(text, fmt::format("'{}' is given twice", key), "keep one");
    }
  }
  return values;
}

/// `out` keeps its value when the key is absent.
Status take_size(const std::map<std::string, std::string>& values, const std::string& key,
                 std::string_view text, std::int64_t& out) {
  const auto found = values.find(key);
  if (found == values.end()) return {};
  const std::string& digits = found->second;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (error == std::errc::result_out_of_range) {
    return bad_shape(text, fmt::format("{}={} overflows", key, digits.substr(0, 40)),
                     "write a smaller size");
  }
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    return bad_shape(text, fmt::format("{}={} is not a whole number", key, digits.substr(0, 40)),
                     "write digits only");
  }
  if (out < 1)
    return bad_shape(text, fmt::format("{}={} is not positive", key, out), "write 1 or more");
  return {};
}

Result<ModelDescription> parse_shape(std::string_view text, bool llama,
                                     std::optional<std::int64_t> seq) {
  BAYPLAN_TRY(values, split_shape(text, text.substr(text.find(':') + 1)));
  for (const char* key : {"hidden", "layers", "heads"}) {
    if (!values.contains(key)) {
      return bad_shape(text, fmt::format("'{}' is missing", key),
                       "hidden, layers and heads are needed");
    }
  }
  ModelDescription model;
  Architecture& a = model.architecture;
  a.name = std::string(text);
  a.family = llama ? "llama" : "gpt2";
  if (llama) {
    a.norm = Architecture::Norm::kRmsNorm;
    a.position = Architecture::Position::kRope;
    a.activation = Architecture::Activation::kSwiglu;
    a.qkv_bias = a.attention_out_bias = a.mlp_bias = false;
  }
  BAYPLAN_RETURN_IF_ERROR(take_size(values, "hidden", text, a.hidden));
  BAYPLAN_RETURN_IF_ERROR(take_size(values, "layers", text, a.layers));
  BAYPLAN_RETURN_IF_ERROR(take_size(values, "heads", text, a.heads));
  if (a.hidden > (std::int64_t{1} << 20)) {
    return bad_shape(text, fmt::format("hidden={} overflows", a.hidden), "write at most 1048576");
  }
  if (a.hidden % a.heads != 0) {
    return bad_shape(text,
                     fmt::format("{} heads do not divide the hidden size {}", a.heads, a.hidden),
                     "hidden must be a multiple of heads");
  }
  a.head_dim = a.hidden / a.heads;
  a.kv_heads = a.heads;
  a.ffn = llama ? round_up(ceil_div(8 * a.hidden, 3), 256) : 4 * a.hidden;
  a.vocab = llama ? 32000 : 50257;
  a.max_seq = seq.value_or(kDefaultSeq);
  a.tied = !llama;
  BAYPLAN_RETURN_IF_ERROR(take_size(values, "kv_heads", text, a.kv_heads));
  BAYPLAN_RETURN_IF_ERROR(take_size(values, "ffn", text, a.ffn));
  BAYPLAN_RETURN_IF_ERROR(take_size(values, "vocab", text, a.vocab));
  BAYPLAN_RETURN_IF_ERROR(take_size(values, "seq", text, a.max_seq));
  if (const auto tied = values.find("tied"); tied != values.end()) {
    if (tied->second != "yes" && tied->second != "no") {
      return bad_shape(text, fmt::format("tied={} is not yes or no", tied->second.substr(0, 40)),
                       "write tied=yes or tied=no");
    }
    a.tied = tied->second == "yes";
  }
  BAYPLAN_RETURN_IF_ERROR(check_shape_limits(a, fmt::format("MODEL '{}'", text.substr(0, 120))));
  return model;
}

bool names_a_file(std::string_view text) {
  std::error_code ignored;
  return text.ends_with(".json") || text.find('/') != std::string_view::npos || text == "." ||
         std::filesystem::exists(std::filesystem::path(text), ignored);
}

Result<ModelDescription> describe(std::string_view text, std::optional<std::int64_t> seq) {
  if (text.starts_with("gpt:")) return parse_shape(text, false, seq);
  if (text.starts_with("llama:")) return parse_shape(text, true, seq);
  if (const EmbeddedFile* preset = find_preset_file(kPresetFolder, text)) {
    BAYPLAN_TRY(config, preset_field(*preset, "config"));
    return read_hf_config(config, std::string(text));
  }
  if (names_a_file(text)) return read_config_file(std::string(text));
  return Error{
      "unknown-preset", fmt::format("no model preset or file is called '{}'", text.substr(0, 80)),
      "MODEL",
      fmt::format("nearest: '{}'; 'bayplan presets models' lists all; a plain shape is written "
                  "gpt:hidden=1024,layers=24,heads=16",
                  nearest_name(text, model_preset_names()))};
}

}  // namespace

const std::vector<std::string>& model_preset_names() {
  static const std::vector<std::string> names = preset_names(kPresetFolder);
  return names;
}

Result<ModelDescription> resolve_model(std::string_view text, std::optional<std::int64_t> seq) {
  BAYPLAN_TRY(model, describe(text, seq));
  if (Status status = check_architecture(model.architecture); !status) {
    Error error = status.error();
    if (error.where.empty()) error.where = fmt::format("MODEL '{}'", text.substr(0, 120));
    return error;
  }
  return model;
}

std::string model_source(std::string_view text) {
  if (const EmbeddedFile* preset = find_preset_file(kPresetFolder, text)) {
    if (auto source = preset_field(*preset, "source"); source) {
      if (auto words = source->string(); words) return *words;
    }
    return std::string(preset->path);
  }
  if (text.starts_with("gpt:") || text.starts_with("llama:")) return "the shape as typed";
  return std::string(text);
}

std::int64_t longest_seq(const ModelDescription& model) {
  const std::int64_t positions = model.architecture.max_seq;
  return model.attention_window > 0 ? std::min(positions, model.attention_window) : positions;
}

}  // namespace bayplan
