// Hugging Face config.json → Architecture, for the dense decoder families that can be built here
// (gpt2, llama, mistral, qwen2). Another family is refused by name: nothing is guessed from
// similar fields. Not for: weights (safetensors).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/core/architecture.h"
#include "planner/core/result.h"
#include "planner/formats/json_cursor.h"

namespace bayplan {

/// A model as described by its owner: the shape, and what the shape does not say.
struct ModelDescription {
  Architecture architecture;
  /// Tokens that one query attends to (sliding window); 0 = all. Longer sequences are refused.
  std::int64_t attention_window = 0;
  /// Traits that change numbers but no shape, time or byte, and that a run here would not follow;
  /// predictions are unaffected, `run` refuses.
  std::vector<std::string> not_executed;
  friend bool operator==(const ModelDescription&, const ModelDescription&) = default;
};

/// model_type values that read_hf_config accepts.
const std::vector<std::string>& supported_families();

/// `name` becomes the architecture's name.
Result<ModelDescription> read_hf_config(const JsonCursor& at, const std::string& name);

/// Limits that keep every product of shape fields inside 64 bits, and the divisibility that every
/// family needs. `where` goes into the error.
Status check_shape_limits(const Architecture& architecture, const std::string& where);

}  // namespace bayplan
