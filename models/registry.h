// What MODEL can name: a preset of models/presets, a Hugging Face config.json or a folder with
// one, or a plain shape. Not for: building the graph (build_model.h) or hardware (clusters.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/core/result.h"
#include "planner/formats/hf_config.h"

namespace bayplan {

/// Preset names, sorted.
const std::vector<std::string>& model_preset_names();

/// MODEL → description.
///   gpt2 · path/config.json · path/ · gpt:hidden=1024,layers=24,heads=16[,kv_heads=,ffn=,vocab=,
///   seq=,tied=yes|no] · llama:…
/// `seq` is --seq, which a plain shape without its own takes as its longest sequence (else 1024).
/// A preset's name wins over a file of that name; write ./NAME for the file.
/// Errors: "unknown-preset" (names the nearest), "bad-shape", and those of the config reader.
Result<ModelDescription> resolve_model(std::string_view text,
                                       std::optional<std::int64_t> seq = std::nullopt);

/// Where the description comes from, in words.
std::string model_source(std::string_view text);

/// Longest sequence that the model can be trained on without approximating it.
std::int64_t longest_seq(const ModelDescription& model);

}  // namespace bayplan
