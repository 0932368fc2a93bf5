// The few numbers that a dense decoder's shape follows from. models/build_*.h turns one into a
// ModelGraph. Not for: job settings (training_job.h) or anything a layout decides.
#pragma once

#include <cstdint>
#include <string>

namespace bayplan {

struct Architecture {
  enum class Norm : std::uint8_t { kLayerNorm, kRmsNorm };
  enum class Position : std::uint8_t { kLearned, kRope };
  enum class Activation : std::uint8_t { kGelu, kSwiglu };

  std::string name;    // as the user gave it, e.g. "gpt2" or "gpt:hidden=64,..."
  std::string family;  // "gpt2" | "llama"
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;  // need not be hidden / heads
  std::int64_t ffn = 0;
  std::int64_t vocab = 0;
  std::int64_t max_seq = 0;
  bool tied = true;  // lm_head shares the embedding's weight
  Norm norm = Norm::kLayerNorm;
  Position position = Position::kLearned;
  Activation activation = Activation::kGelu;
  bool qkv_bias = true;
  bool attention_out_bias = true;
  bool mlp_bias = true;
  bool qk_norm = false;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;
  double init_std = 0.02;
  friend bool operator==(const Architecture&, const Architecture&) = default;
};

}  // namespace bayplan
