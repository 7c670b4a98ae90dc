#include "tests/ranks/test_models.h"

#include <random>

#include "model/model_files.h"
#include "model/random_source.h"
#include "model/safetensors_source.h"

namespace tandem::ranks {
namespace {

constexpr const char* kTinyMoe = "models/tiny-moe";

}  // namespace

ScoredModel tiny_moe(DType compute) {
  return {.config = model::ModelFiles::open(kTinyMoe).value().config,
          .make_source = []() -> Result<std::unique_ptr<model::WeightSource>> {
            auto source = TANDEM_TRY(model::SafetensorsSource::open(kTinyMoe));
            return std::unique_ptr<model::WeightSource>(
                new model::SafetensorsSource(std::move(source)));
          },
          .compute = compute};
}

ScoredModel random_model(const RandomShape& shape, DType compute) {
  model::ModelConfig c;
  c.family = model::ModelFamily::kQwen3Moe;
  c.hidden_size = 64;
  c.layers_count = 2;
  c.heads = shape.heads;
  c.kv_heads = shape.kv_heads;
  c.head_dim = 16;
  c.intermediate_size = shape.dense_columns;
  c.moe_intermediate_size = 48;
  c.experts_count = shape.experts;
  c.experts_per_token = shape.experts_per_token;
  c.norm_topk_prob = true;
  c.layer_is_moe = {shape.dense_columns == 0, shape.experts > 0};
  c.rms_norm_eps = 1e-6f;
  c.vocab_size = shape.vocabulary;
  c.tie_word_embeddings = shape.tied;
  c.max_position_embeddings = RankScorer::kLengthMax;
  c.rope = {.theta = 10000.0, .rotary_dim = 16};
  return {.config = c,
          .make_source = [c]() -> Result<std::unique_ptr<model::WeightSource>> {
            return std::unique_ptr<model::WeightSource>(new model::RandomSource(c, 7));
          },
          .compute = compute};
}

std::vector<Text> random_texts(const std::vector<int>& lengths, int64_t vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<TokenId> token(0, static_cast<TokenId>(vocabulary - 1));
  std::vector<Text> texts;
  for (int length : lengths) {
    Text& text = texts.emplace_back();
    for (int i = 0; i < length; ++i) text.push_back(token(random));
  }
  return texts;
}

}  // namespace tandem::ranks
