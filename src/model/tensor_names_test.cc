// Goal: the names and shapes a config expects are those that transformers writes, and a checkpoint
// that does not fit is refused with everything that is wrong with it.
// Method: models/tiny-moe, written by the reference library; a source of made-up tensors.
#include "model/tensor_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "io/file.h"
#include "model/safetensors_source.h"

namespace tandem::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A source that knows shapes and types only.
class FakeSource final : public WeightSource {
 public:
  explicit FakeSource(const ModelConfig& config) {
    for (const ExpectedTensor& tensor : expected_tensors(config)) {
      tensors[tensor.name] = {.dtype_name = "bf16", .dtype = DType::kBF16, .shape = tensor.shape};
    }
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& [name, info] : tensors) result.push_back(name);
    return result;
  }
  Result<WeightView> tensor(const std::string&) override {
    return make_error(Code::kUnimplemented, "checking needs no bytes");
  }
  Result<WeightInfo> describe(const std::string& name) override { return tensors.at(name); }

  std::map<std::string, WeightInfo> tensors;
};

ModelConfig config_of(const std::string& more) {
  return parse_config(R"({"model_type": "qwen3_moe", "rope_theta": 10000, "hidden_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
      "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
      "intermediate_size": 48, "vocab_size": 100, "mlp_only_layers": [0])" +
                      more + "}")
      .value();
}

TEST(TensorNames, AreThoseOfTransformers) {
  const TensorNames names;
  EXPECT_EQ(names.embedding(), "model.embed_tokens.weight");
  EXPECT_EQ(names.final_norm(), "model.norm.weight");
  EXPECT_EQ(names.lm_head(), "lm_head.weight");
  EXPECT_EQ(names.input_norm(3), "model.layers.3.input_layernorm.weight");
  EXPECT_EQ(names.q_norm(3), "model.layers.3.self_attn.q_norm.weight");
  EXPECT_EQ(names.k_norm(3), "model.layers.3.self_attn.k_norm.weight");
  EXPECT_EQ(names.post_attention_norm(3), "model.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(names.attention(3, "o_proj"), "model.layers.3.self_attn.o_proj.weight");
  EXPECT_EQ(names.mlp(3, "up_proj"), "model.layers.3.mlp.up_proj.weight");
  EXPECT_EQ(names.router(3), "model.layers.3.mlp.gate.weight");
  EXPECT_EQ(names.expert(3, 17, "down_proj"), "model.layers.3.mlp.experts.17.down_proj.weight");
}

TEST(ExpectedTensors, FollowTheConfig) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const ExpectedTensor& tensor : expected_tensors(config_of(""))) {
    EXPECT_TRUE(shapes.emplace(tensor.name, tensor.shape).second) << tensor.name;
  }
  EXPECT_EQ(shapes.size(), 1u + (8 + 3) + (8 + 1 + 3 * 3) + 2);
  EXPECT_THAT(shapes["model.embed_tokens.weight"], ElementsAre(100, 64));
  EXPECT_THAT(shapes["model.layers.0.self_attn.q_proj.weight"], ElementsAre(32, 64));
  EXPECT_THAT(shapes["model.layers.0.self_attn.v_proj.weight"], ElementsAre(16, 64));
  EXPECT_THAT(shapes["model.layers.0.self_attn.o_proj.weight"], ElementsAre(64, 32));
  EXPECT_THAT(shapes["model.layers.0.self_attn.k_norm.weight"], ElementsAre(8));
  EXPECT_THAT(shapes["model.layers.0.mlp.down_proj.weight"], ElementsAre(64, 48));
  EXPECT_THAT(shapes["model.layers.1.mlp.gate.weight"], ElementsAre(3, 64));
  EXPECT_THAT(shapes["model.layers.1.mlp.experts.2.gate_proj.weight"], ElementsAre(16, 64));
  EXPECT_THAT(shapes["model.layers.1.mlp.experts.2.down_proj.weight"], ElementsAre(64, 16));
  EXPECT_EQ(shapes.count("lm_head.weight"), 1u);

  const ModelConfig tied = config_of(R"(, "tie_word_embeddings": true)");
  for (const ExpectedTensor& tensor : expected_tensors(tied)) {
    EXPECT_NE(tensor.name, "lm_head.weight");
  }
}

TEST(CheckTensors, TheBundledModelFits) {
  const ModelConfig config =
      parse_config(io::read_file("models/tiny-moe/config.json", 1 << 20).value()).value();
  SafetensorsSource source = SafetensorsSource::open("models/tiny-moe").value();
  const Result<void> checked = check_tensors(config, source);
  EXPECT_TRUE(checked.ok()) << checked.error().what;
}

TEST(CheckTensors, AcceptsThreeDtypes) {
  const ModelConfig config = config_of("");
  FakeSource source(config);
  source.tensors["model.norm.weight"].dtype = DType::kF32;
  source.tensors["lm_head.weight"].dtype = DType::kF16;
  EXPECT_TRUE(check_tensors(config, source).ok());
}

TEST(CheckTensors, IgnoresWhatTransformersIgnores) {
  ModelConfig config = config_of("");
  FakeSource source(config);
  source.tensors["mtp.fc.weight"] = {};
  source.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {};
  EXPECT_TRUE(check_tensors(config, source).ok());
  config.tie_word_embeddings = true;
  EXPECT_TRUE(check_tensors(config, source).ok());
}

/// Replaces the tensors of every expert of layer 1 by the fused ones.
void fuse_layer_1(FakeSource& source) {
  std::erase_if(source.tensors, [](const auto& tensor) {
    return tensor.first.find("layers.1.mlp.experts.") != std::string::npos;
  });
  const std::string prefix = "model.layers.1.mlp.experts.";
  const WeightInfo info{.dtype_name = "bf16", .dtype = DType::kBF16, .shape = {}};
  source.tensors[prefix + "gate_up_proj"] = info;
  source.tensors[prefix + "gate_up_proj"].shape = {3, 32, 64};
  source.tensors[prefix + "down_proj"] = info;
  source.tensors[prefix + "down_proj"].shape = {3, 64, 16};
}

TEST(CheckTensors, AcceptsFusedExperts) {
  const ModelConfig config = config_of("");
  FakeSource source(config);
  EXPECT_THAT(fused_layers(config, source.names()), ElementsAre(false, false));
  fuse_layer_1(source);
  EXPECT_THAT(fused_layers(config, source.names()), ElementsAre(false, true));
  const Result<void> checked = check_tensors(config, source);
  EXPECT_TRUE(checked.ok()) << checked.error().what;
}

TEST(CheckTensors, RefusesHalfFusedAndTransposedExperts) {
  const ModelConfig config = config_of("");
  const std::string prefix = "model.layers.1.mlp.experts.";
  FakeSource half(config);
  fuse_layer_1(half);
  half.tensors.erase(prefix + "down_proj");
  EXPECT_THAT(check_tensors(config, half).error().what,
              HasSubstr("missing tensors (1): " + prefix + "down_proj"));

  FakeSource both(config);
  fuse_layer_1(both);
  both.tensors[prefix + "2.up_proj.weight"] = {};
  EXPECT_THAT(check_tensors(config, both).error().what,
              HasSubstr("unexpected tensors (1): " + prefix + "2.up_proj.weight"));

  FakeSource transposed(config);
  fuse_layer_1(transposed);
  transposed.tensors[prefix + "gate_up_proj"].shape = {3, 64, 32};
  EXPECT_THAT(check_tensors(config, transposed).error().what,
              HasSubstr(prefix + "gate_up_proj [3, 64, 32] instead of [3, 32, 64]"));

  // A dense layer has no experts, fused or not.
  FakeSource dense(config);
  dense.tensors["model.layers.0.mlp.experts.down_proj"] = {};
  EXPECT_THAT(check_tensors(config, dense).error().what, HasSubstr("unexpected tensors (1)"));
}

TEST(CheckTensors, TellsEverythingAtOnce) {
  const ModelConfig config = config_of("");
  FakeSource source(config);
  source.tensors.erase("model.norm.weight");
  source.tensors.erase("model.layers.1.mlp.gate.weight");
  source.tensors["model.embed_tokens.weight"].shape = {99, 64};
  source.tensors["lm_head.weight"] = {.dtype_name = "F64", .dtype = {}, .shape = {100, 64}};
  source.tensors["model.layers.0.self_attn.q_proj.bias"] = {};
  const Result<void> checked = check_tensors(config, source);
  ASSERT_FALSE(checked.ok());
  const std::string& error = checked.error().what;
  EXPECT_THAT(error, HasSubstr("missing tensors (2): model.layers.1.mlp.gate.weight, model.norm"));
  EXPECT_THAT(error, HasSubstr("model.embed_tokens.weight [99, 64] instead of [100, 64]"));
  EXPECT_THAT(error, HasSubstr("lm_head.weight F64 instead of bf16, f16 or f32"));
  EXPECT_THAT(error, HasSubstr("unexpected tensors (1): model.layers.0.self_attn.q_proj.bias"));
}

TEST(CheckTensors, LongListsAreCut) {
  const ModelConfig config = config_of("");
  FakeSource source(config);
  source.tensors.clear();
  const std::string error = check_tensors(config, source).error().what;
  EXPECT_THAT(error, HasSubstr("missing tensors (32): "));
  EXPECT_THAT(error, HasSubstr("... and 12 more"));
  EXPECT_THAT(error, Not(HasSubstr("lm_head")));
}

}  // namespace
}  // namespace tandem::model
