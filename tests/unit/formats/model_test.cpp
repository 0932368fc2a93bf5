// MODEL: presets with exact parameter counts, Hugging Face configurations, plain shapes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "models/build_model.h"
#include "models/registry.h"
#include "planner/formats/hf_config.h"

namespace bayplan {
namespace {

TEST(ModelPresets, ParameterCountsAreThePublishedOnes) {
  std::ifstream table(std::string(BAYPLAN_TEST_DATA_DIR) + "/model_parameters.csv");
  std::string line;
  int rows = 0;
  while (std::getline(table, line)) {
    if (line.starts_with("#") || line.starts_with("name,")) continue;
    const std::size_t comma = line.find(',');
    const std::string name = line.substr(0, comma);
    const auto model = resolve_model(name);
    ASSERT_TRUE(model.ok()) << name << ": " << model.error().message;
    EXPECT_EQ(parameter_count(build_model(model->architecture, false)),
              std::stoll(line.substr(comma + 1)))
        << name;
    ++rows;
  }
  EXPECT_EQ(rows, static_cast<int>(model_preset_names().size()));
}

TEST(ModelPresets, UnknownNameNamesTheNearest) {
  const auto model = resolve_model("gpt2-larg");
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, "unknown-preset");
  EXPECT_NE(model.error().hint.find("'gpt2-large'"), std::string::npos) << model.error().hint;
}

TEST(ModelShape, GptDefaults) {
  const auto model = resolve_model("gpt:hidden=1024,layers=24,heads=16");
  ASSERT_TRUE(model.ok()) << model.error().message;
  const Architecture& a = model->architecture;
  EXPECT_EQ(a.kv_heads, 16);
  EXPECT_EQ(a.head_dim, 64);
  EXPECT_EQ(a.ffn, 4096);
  EXPECT_EQ(a.vocab, 50257);
  EXPECT_EQ(a.max_seq, 1024);
  EXPECT_TRUE(a.tied);
}

TEST(ModelShape, LlamaDefaults) {
  const auto model = resolve_model("llama:hidden=4096,layers=32,heads=32,kv_heads=8");
  ASSERT_TRUE(model.ok());
  const Architecture& a = model->architecture;
  // 8/3 * 4096 = 10922.67, up to a multiple of 256: 43 * 256 = 11008.
  EXPECT_EQ(a.ffn, 11008);
  EXPECT_EQ(a.vocab, 32000);
  EXPECT_EQ(a.kv_heads, 8);
  EXPECT_FALSE(a.tied);
}

TEST(ModelShape, LongestSequenceIsItsOwnElseTheOption) {
  EXPECT_EQ(resolve_model("gpt:hidden=64,layers=1,heads=1", 77)->architecture.max_seq, 77);
  EXPECT_EQ(resolve_model("gpt:hidden=64,layers=1,heads=1,seq=2048", 77)->architecture.max_seq,
            2048);
}

struct BadModel {
  const char* text;
  const char* code;
};
class RefusedModel : public ::testing::TestWithParam<BadModel> {};

TEST_P(RefusedModel, WithCodeAndHint) {
  const auto model = resolve_model(GetParam().text);
  ASSERT_FALSE(model.ok()) << GetParam().text;
  EXPECT_EQ(model.error().code, GetParam().code)
      << GetParam().text << ": " << model.error().message;
  EXPECT_FALSE(model.error().where.empty()) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(
    Texts, RefusedModel,
    ::testing::Values(BadModel{"", "unknown-preset"}, BadModel{"gpt:", "bad-shape"},
                      BadModel{"gpt:hidden=64,layers=2", "bad-shape"},
                      BadModel{"gpt:hidden=64,layers=2,heads=5", "bad-shape"},
                      BadModel{"gpt:hidden=64,layers=2,heads=4,kv_heads=3", "bad-shape"},
                      BadModel{"gpt:hidden=0,layers=2,heads=4", "bad-shape"},
                      BadModel{"gpt:hidden=-64,layers=2,heads=4", "bad-shape"},
                      BadModel{"gpt:hidden=64,layers=99999999999999999999,heads=4", "bad-shape"},
                      BadModel{"gpt:hidden=9000000000000000000,layers=1,heads=1", "bad-shape"},
                      BadModel{"gpt:hidden=64,layers=2000000,heads=4", "out-of-range"},
                      BadModel{"gpt:hidden=64,layers=2,heads=4,width=3", "unknown-field"},
                      BadModel{"gpt:hidden=64,hidden=64,layers=2,heads=4", "bad-shape"},
                      BadModel{"gpt:hidden=64,layers=two,heads=4", "bad-shape"},
                      BadModel{"gpt:hidden=64,layers=2,heads=4,tied=maybe", "bad-shape"},
                      BadModel{"llama:hidden=6,layers=1,heads=2",
                               "bad-shape"},  // head size 3 is odd
                      BadModel{"no/such/folder/", "file-not-found"},
                      BadModel{"none.json", "file-not-found"}));

Result<ModelDescription> read_config(const std::string& text) {
  BAYPLAN_TRY(document, parse_json(text, "config.json"));
  return read_hf_config(JsonCursor(document), "test");
}

constexpr const char* kLlama =
    R"("hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 97)";

std::string config(const std::string& family, const std::string& more = "") {
  return "{\"model_type\": \"" + family + "\", " + kLlama + more + "}";
}

TEST(HfConfig, LlamaBiasesFollowTheirFlags) {
  const auto plain = read_config(config("llama"));
  const auto biased = read_config(config("llama", R"(, "attention_bias": true, "mlp_bias": true)"));
  ASSERT_TRUE(plain.ok() && biased.ok());
  EXPECT_FALSE(plain->architecture.qkv_bias || plain->architecture.attention_out_bias ||
               plain->architecture.mlp_bias);
  EXPECT_TRUE(biased->architecture.qkv_bias && biased->architecture.attention_out_bias &&
              biased->architecture.mlp_bias);
  EXPECT_EQ(plain->architecture.kv_heads, 4);
}

TEST(HfConfig, Qwen2HasBiasesOnQueryKeyValueOnly) {
  const auto model = read_config(config("qwen2"));
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE(model->architecture.qkv_bias);
  EXPECT_FALSE(model->architecture.attention_out_bias || model->architecture.mlp_bias);
}

TEST(HfConfig, HeadSizeNeedNotBeHiddenOverHeads) {
  const auto model = read_config(config("mistral", R"(, "head_dim": 32, "sliding_window": null)"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->architecture.head_dim, 32);
  EXPECT_EQ(model->attention_window, 0);
}

TEST(HfConfig, SlidingWindowBoundsTheSequence) {
  // Mistral 7B: 32768 positions, window 4096; longer sequences would need windowed attention.
  const auto model = resolve_model("mistral-7b-v0.1");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->attention_window, 4096);
  EXPECT_EQ(longest_seq(*model), 4096);
}

TEST(HfConfig, RopeScalingIsPredictedButNotRun) {
  const auto model = resolve_model("llama-3.1-8b");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->not_executed, std::vector<std::string>{"rope_scaling"});
}

TEST(HfConfig, UnknownFamilyIsRefusedByName) {
  const auto model = read_config(config("mixtral"));
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, "unsupported-family");
  EXPECT_NE(model.error().message.find("mixtral"), std::string::npos);
  EXPECT_NE(model.error().hint.find("gpt2, llama, mistral, qwen2"), std::string::npos);
}

TEST(HfConfig, RefusesWhatWouldBeApproximated) {
  EXPECT_EQ(read_config(config("llama", R"(, "hidden_act": "gelu")")).error().code, "unsupported");
  EXPECT_EQ(read_config(config("llama", R"(, "quantization_config": {})")).error().code,
            "unsupported");
  EXPECT_EQ(read_config(config("llama", R"(, "architectures": ["LlamaForSequenceClassification"])"))
                .error()
                .code,
            "unsupported");
  EXPECT_EQ(read_config(config("llama", R"(, "num_key_value_heads": 3)")).error().code,
            "bad-shape");
  EXPECT_EQ(read_config(config("llama", R"(, "head_dim": 15)")).error().code, "bad-shape");
  EXPECT_EQ(read_config(R"({"model_type": "llama"})").error().code, "missing-field");
  EXPECT_EQ(read_config("{}").error().code, "missing-field");
  EXPECT_EQ(read_config("[]").error().code, "wrong-type");
  EXPECT_EQ(read_config(R"({"model_type": "gpt2", "n_embd": 10, "n_head": 3, "n_layer": 1})")
                .error()
                .code,
            "bad-shape");
  EXPECT_EQ(read_config(R"({"model_type": "gpt2", "n_embd": 12, "n_head": 3, "n_layer": 1,
                            "activation_function": "relu"})")
                .error()
                .code,
            "unsupported");
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "bayplan-model-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(ModelFiles, ConfigAndItsFolderAreTheSameModel) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "config.json") << config("llama");
  const auto file = resolve_model((folder.path() / "config.json").string());
  auto in_folder = resolve_model(folder.path().string());
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_TRUE(in_folder.ok()) << in_folder.error().message;
  in_folder->architecture.name = file->architecture.name;
  EXPECT_EQ(*file, *in_folder);
}

TEST(ModelFiles, APlanIsNoModel) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "p.json") << R"({"schema": "bayplan.plan/1"})";
  EXPECT_EQ(resolve_model((folder.path() / "p.json").string()).error().code, "not-a-model");
}

}  // namespace
}  // namespace bayplan
