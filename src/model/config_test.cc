// Goal: every spelling of a Qwen3 config gives the same values, absent keys take the defaults of
// transformers 5.24 (its configuration classes, read and compared by hand), and what is broken or
// not supported is one error that names the key.
// Method: whole files of models/, and small texts that change one key of a good config.
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "io/file.h"
#include "model/strict_json.h"

namespace tandem::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A config as transformers 4 writes it.
const Json kOld = Json::parse(R"({
  "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "decoder_sparse_step": 1,
  "head_dim": 16, "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96,
  "max_position_embeddings": 512, "max_window_layers": 4, "mlp_only_layers": [],
  "moe_intermediate_size": 32, "norm_topk_prob": true, "num_attention_heads": 8,
  "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 4, "num_key_value_heads": 2,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
  "sliding_window": 4096, "use_sliding_window": false, "tie_word_embeddings": false,
  "torch_dtype": "float16", "vocab_size": 100})");

/// kOld with some keys replaced; null stands for a null in the file.
Json with(const Json& changes) {
  Json config = kOld;
  config.update(changes);
  return config;
}

Json without(Json config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) config.erase(key);
  return config;
}

Result<ModelConfig> parse(const Json& config) {
  return parse_config(config.dump());
}

/// The error of a config that must fail.
std::string error_of(const Json& config) {
  const Result<ModelConfig> result = parse(config);
  return result.ok() ? "no error" : result.error().what;
}

TEST(Config, ReadsTheBundledModels) {
  const ModelConfig tiny =
      parse_config(io::read_file("models/tiny-moe/config.json", 1 << 20).value()).value();
  EXPECT_EQ(tiny.family, ModelFamily::kQwen3Moe);
  EXPECT_EQ(tiny.hidden_size, 256);
  EXPECT_EQ(tiny.layers_count, 4);
  EXPECT_EQ(tiny.heads, 8);
  EXPECT_EQ(tiny.kv_heads, 4);
  EXPECT_EQ(tiny.head_dim, 64);
  EXPECT_EQ(tiny.intermediate_size, 512);
  EXPECT_EQ(tiny.moe_intermediate_size, 128);
  EXPECT_EQ(tiny.experts_count, 16);
  EXPECT_EQ(tiny.experts_per_token, 4);
  EXPECT_TRUE(tiny.norm_topk_prob);
  EXPECT_THAT(tiny.layer_is_moe, ElementsAre(true, true, true, true));
  EXPECT_EQ(tiny.rms_norm_eps, 1e-6f);
  EXPECT_EQ(tiny.vocab_size, 4096);
  EXPECT_FALSE(tiny.tie_word_embeddings);
  EXPECT_EQ(tiny.max_position_embeddings, 8192);
  EXPECT_THAT(tiny.eos_token_ids, ElementsAre(4072));
  EXPECT_EQ(tiny.checkpoint_dtype, DType::kBF16);
  EXPECT_EQ(tiny.rope, (RopeConfig{.theta = 1e4, .rotary_dim = 64}));

  EXPECT_TRUE(parse_config(io::read_file("models/bench-moe/config.json", 1 << 20).value()).ok());
}

TEST(Config, OldAndNewSpellingsAreEqual) {
  const ModelConfig old = parse(kOld).value();
  Json now = without(kOld, {"torch_dtype", "num_experts", "rope_theta", "rope_scaling"});
  now.update(Json::parse(R"({"dtype": "float16", "num_local_experts": 8, "eos_token_id": [2],
      "layer_types": ["full_attention", "full_attention", "full_attention", "attention"],
      "sliding_window": null, "mlp_only_layers": null,
      "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000, "factor": 4,
                          "original_max_position_embeddings": 128}})"));
  EXPECT_EQ(parse(now).value(), old);
  EXPECT_EQ(old.checkpoint_dtype, DType::kF16);
  EXPECT_EQ(old.rope.scaling, RopeConfig::Scaling::kYarn);
}

TEST(Config, DescendsIntoTextConfig) {
  Json text = without(kOld, {"torch_dtype", "eos_token_id"});
  text["tie_word_embeddings"] = false;
  const Json wrapped = {{"model_type", "some_wrapper"},
                        {"text_config", text},
                        {"dtype", "float16"},
                        {"eos_token_id", 2},
                        {"tie_word_embeddings", true}};
  ModelConfig expected = parse(kOld).value();
  expected.tie_word_embeddings = true;  // the wrapper wins
  EXPECT_EQ(parse(wrapped).value(), expected);

  Json broken = wrapped;
  broken["text_config"]["num_attention_heads"] = 0;
  EXPECT_THAT(error_of(broken), HasSubstr("\"text_config.num_attention_heads\" is 0"));
  EXPECT_EQ(parse(with({{"text_config", nullptr}})).value(), parse(kOld).value());
  EXPECT_THAT(error_of({{"text_config", 3}}), HasSubstr("\"text_config\" is 3"));
}

TEST(Config, Qwen3Defaults) {
  const ModelConfig c = parse({{"model_type", "qwen3"}, {"rope_theta", 1e6}}).value();
  ModelConfig expected;
  expected.family = ModelFamily::kQwen3;
  expected.hidden_size = 4096;
  expected.layers_count = 32;
  expected.heads = 32;
  expected.kv_heads = 32;
  expected.head_dim = 128;
  expected.intermediate_size = 22016;
  expected.layer_is_moe.assign(32, false);
  expected.rms_norm_eps = 1e-6f;
  expected.vocab_size = 151936;
  expected.max_position_embeddings = 32768;
  expected.rope = {.theta = 1e6, .rotary_dim = 128};
  EXPECT_EQ(c, expected);
}

TEST(Config, Qwen3MoeDefaults) {
  const ModelConfig c = parse({{"model_type", "qwen3_moe"}, {"rope_theta", 1e6}}).value();
  ModelConfig expected;
  expected.family = ModelFamily::kQwen3Moe;
  expected.hidden_size = 2048;
  expected.layers_count = 24;
  expected.heads = 32;
  expected.kv_heads = 4;
  expected.head_dim = 64;  // hidden / heads
  expected.intermediate_size = 6144;
  expected.moe_intermediate_size = 768;
  expected.experts_count = 128;
  expected.experts_per_token = 8;
  expected.norm_topk_prob = false;
  expected.layer_is_moe.assign(24, true);
  expected.rms_norm_eps = 1e-6f;
  expected.vocab_size = 151936;
  expected.max_position_embeddings = 32768;
  expected.rope = {.theta = 1e6, .rotary_dim = 64};
  EXPECT_EQ(c, expected);
}

TEST(Config, LayersWithExperts) {
  EXPECT_THAT(parse(with({{"decoder_sparse_step", 2}}))->layer_is_moe,
              ElementsAre(false, true, false, true));
  EXPECT_THAT(parse(with({{"decoder_sparse_step", 2}, {"mlp_only_layers", {1, 2}}}))->layer_is_moe,
              ElementsAre(false, false, false, true));
  EXPECT_THAT(parse(with({{"decoder_sparse_step", 5}}))->layer_is_moe,
              ElementsAre(false, false, false, false));
  const ModelConfig dense = parse(with({{"num_experts", 0}})).value();
  EXPECT_THAT(dense.layer_is_moe, ElementsAre(false, false, false, false));
  EXPECT_EQ(dense.experts_count, 0);
  EXPECT_THAT(error_of(with({{"decoder_sparse_step", 0}})), HasSubstr("\"decoder_sparse_step\""));
  EXPECT_THAT(error_of(with({{"mlp_only_layers", {4}}})), HasSubstr("integer from 0 to 3"));
}

TEST(Config, EosIsANumberOrAListOrAbsent) {
  EXPECT_THAT(parse(with({{"eos_token_id", {2, 7}}}))->eos_token_ids, ElementsAre(2, 7));
  EXPECT_THAT(parse(with({{"eos_token_id", nullptr}}))->eos_token_ids, IsEmpty());
  EXPECT_THAT(error_of(with({{"eos_token_id", 100}})), HasSubstr("integer from 0 to 99"));
  EXPECT_THAT(error_of(with({{"eos_token_id", "2"}})), HasSubstr("\"eos_token_id\" is \"2\""));
}

TEST(Config, NullKvHeadsMeansOnePerQueryHead) {
  EXPECT_EQ(parse(with({{"num_key_value_heads", nullptr}}))->kv_heads, 8);
  EXPECT_EQ(parse(without(kOld, {"num_key_value_heads"}))->kv_heads, 4);  // the default
}

TEST(Config, RopeThetaMustBeThere) {
  const std::string error = error_of(without(kOld, {"rope_theta"}));
  EXPECT_THAT(error, HasSubstr("\"rope_theta\" is absent"));
  EXPECT_THAT(error, HasSubstr("add the value"));
  EXPECT_THAT(error_of(with({{"rope_theta", 1.0}})), HasSubstr("\"rope_theta\" is 1.0"));
}

TEST(Config, RopeParametersWinOverThePlainKeys) {
  Json config = without(kOld, {"rope_scaling"});
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e6}};
  EXPECT_EQ(parse(config)->rope, (RopeConfig{.theta = 5e6, .rotary_dim = 16}));
  config["rope_parameters"].erase("rope_theta");
  EXPECT_EQ(parse(config)->rope.theta, 1e6);
  config["rope_scaling"] = kOld["rope_scaling"];
  EXPECT_THAT(error_of(config), HasSubstr("keep one of them"));
  config["rope_parameters"] = Json::object();
  EXPECT_EQ(parse(config)->rope, parse(kOld)->rope);
}

TEST(Config, YarnDefaultsAndOverrides) {
  const auto rope_of = [](const Json& scaling) {
    return parse(with({{"rope_scaling", scaling}}))->rope;
  };
  EXPECT_EQ(rope_of({{"rope_type", "yarn"}, {"factor", 4}}).original_max_position, 512);
  const RopeConfig derived =
      rope_of({{"rope_type", "yarn"}, {"original_max_position_embeddings", 128}});
  EXPECT_EQ(derived.factor, 4.0);
  EXPECT_NEAR(derived.attention_factor, 1.1386294361119891, 1e-15);  // 0.1 ln 4 + 1
  EXPECT_EQ(derived.beta_fast, 32);
  EXPECT_EQ(derived.beta_slow, 1);
  EXPECT_TRUE(derived.truncate);
  const RopeConfig given = rope_of({{"rope_type", "yarn"},
                                    {"type", "ignored"},
                                    {"factor", 2},
                                    {"beta_fast", 16},
                                    {"beta_slow", 2},
                                    {"truncate", false},
                                    {"attention_factor", 0.5}});
  EXPECT_EQ(given.attention_factor, 0.5);
  EXPECT_EQ(given.beta_fast, 16);
  EXPECT_EQ(given.beta_slow, 2);
  EXPECT_FALSE(given.truncate);
}

TEST(Config, WrongRopeScalingIsRefusedByName) {
  const auto error = [](const Json& scaling) {
    return error_of(with({{"rope_scaling", scaling}}));
  };
  EXPECT_THAT(error({{"type", "dynamic"}, {"factor", 2}}), HasSubstr("\"dynamic\"; supported are"));
  EXPECT_THAT(error({{"factor", 2}}), HasSubstr("without \"rope_scaling.rope_type\""));
  EXPECT_THAT(error({{"type", "yarn"}}), HasSubstr("yarn needs"));
  EXPECT_THAT(error({{"type", "linear"}}), HasSubstr("linear scaling needs"));
  EXPECT_THAT(error({{"type", "yarn"}, {"factor", 0.5}}), HasSubstr("factor\" is 0.5"));
  EXPECT_THAT(error({{"type", "yarn"}, {"factor", 2}, {"beta_fast", 1}, {"beta_slow", 2}}),
              HasSubstr("is smaller than"));
  EXPECT_THAT(error({{"full_attention", Json::object()}}), HasSubstr("differ by layer"));
  EXPECT_THAT(error(4), HasSubstr("\"rope_scaling\" is 4, expected an object"));
  EXPECT_THAT(error_of(with({{"partial_rotary_factor", 0.25}})), HasSubstr("partial_rotary"));
  EXPECT_TRUE(parse(with({{"partial_rotary_factor", 1.0}})).ok());
}

TEST(Config, UnsupportedVariantsAreRefusedByName) {
  const auto expect_refused = [](const Json& changes, const char* words) {
    const Result<ModelConfig> result = parse(with(changes));
    ASSERT_FALSE(result.ok()) << changes;
    EXPECT_EQ(result.error().code, Code::kUnimplemented);
    EXPECT_THAT(result.error().what, HasSubstr(words));
  };
  expect_refused({{"model_type", "qwen3_5_moe_text"}},
                 "\"model_type\" is \"qwen3_5_moe_text\"; supported are \"qwen3\" and");
  expect_refused({{"hidden_act", "gelu"}}, "\"hidden_act\" is \"gelu\"");
  expect_refused({{"attention_bias", true}}, "\"attention_bias\" is true");
  expect_refused({{"use_sliding_window", true}}, "sliding window");
  expect_refused({{"layer_types", {"full_attention", "sliding_attention", "x", "x"}}},
                 "contains \"sliding_attention\"");
  expect_refused({{"quantization_config", {{"quant_method", "fp8"}}}},
                 "\"quantization_config\" (fp8)");
  expect_refused({{"torch_dtype", "float64"}}, "\"torch_dtype\" is \"float64\"");
}

TEST(Config, QuantizationInsideTextConfigIsSeenToo) {
  Json text = kOld;
  text["quantization_config"] = {{"quant_method", "gptq"}};
  EXPECT_THAT(error_of({{"text_config", text}}),
              HasSubstr("\"text_config.quantization_config\" (gptq)"));
}

TEST(Config, WrongValuesNameKeyValueAndRange) {
  EXPECT_THAT(error_of(with({{"hidden_size", 0}})),
              HasSubstr("\"hidden_size\" is 0, expected an integer from 1 to 65536"));
  EXPECT_THAT(error_of(with({{"hidden_size", -5}})), HasSubstr("\"hidden_size\" is -5"));
  EXPECT_THAT(error_of(with({{"hidden_size", 64.0}})), HasSubstr("\"hidden_size\" is 64.0"));
  EXPECT_THAT(error_of(with({{"hidden_size", true}})), HasSubstr("\"hidden_size\" is true"));
  EXPECT_THAT(error_of(with({{"hidden_size", "64"}})), HasSubstr("\"hidden_size\" is \"64\""));
  EXPECT_THAT(error_of(with({{"vocab_size", uint64_t{1} << 63}})),
              HasSubstr("\"vocab_size\" is 9223372036854775808"));
  EXPECT_THAT(error_of(with({{"num_experts_per_tok", 9}})), HasSubstr("exceeds the 8 experts"));
  EXPECT_THAT(error_of(with({{"num_local_experts", 9}})), HasSubstr("differ"));
  EXPECT_THAT(error_of(with({{"num_attention_heads", 7}})), HasSubstr("not a multiple of"));
  EXPECT_THAT(error_of(with({{"num_attention_heads", 128}, {"num_key_value_heads", 1}})),
              HasSubstr("(128) is more than 64 times \"num_key_value_heads\" (1)"));
  EXPECT_THAT(error_of(with({{"head_dim", 15}})), HasSubstr("even number"));
  EXPECT_THAT(error_of(with({{"rms_norm_eps", 0}})), HasSubstr("\"rms_norm_eps\""));
  EXPECT_THAT(error_of(with({{"norm_topk_prob", 1}})), HasSubstr("expected true or false"));
  EXPECT_THAT(error_of(with({{"layer_types", {"full_attention"}}})), HasSubstr("names 1 layers"));
  EXPECT_THAT(error_of(with({{"num_hidden_layers", 1024}, {"num_experts", 4096}})),
              HasSubstr("experts in all"));
  EXPECT_THAT(error_of(without(with({{"hidden_size", 60}}), {"head_dim"})),
              HasSubstr("\"head_dim\" is absent"));
  EXPECT_THAT(error_of(without(kOld, {"model_type"})), HasSubstr("\"model_type\" is absent"));
}

TEST(Config, BrokenTextIsOneErrorWithItsPlace) {
  const auto error = [](std::string_view text) { return parse_config(text).error().what; };
  EXPECT_THAT(error(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("{\"a\": 1,}"), HasSubstr("not valid JSON at byte 9"));
  EXPECT_THAT(error("[]"), HasSubstr("is a JSON object, not []"));
  EXPECT_THAT(error("{\"model_type\": \"qwen3\", \"model_type\": \"qwen3\"}"),
              HasSubstr("\"model_type\" appears twice"));
  EXPECT_THAT(error(std::string(1'000'000, '[')), HasSubstr("nested deeper than 32"));
  EXPECT_THAT(error(std::string("{}\0{}", 5)), HasSubstr("zero byte"));
  EXPECT_THAT(error("{\"a\": 1e999}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("{\"a\": \"\xff\"}"), HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace tandem::model
