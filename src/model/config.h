#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/dtype.h"

namespace tandem::model {

enum class ModelFamily { kQwen3, kQwen3Moe };

/// Rotary positions, all defaults resolved: what make_rope_table (rope.h) needs and nothing more.
struct RopeConfig {
  enum class Scaling {
    kNone,
    kLinear,  ///< every frequency divided by `factor`
    kYarn,    ///< low frequencies divided by `factor`, high ones kept (arXiv 2309.00071)
  };
  double theta = 0;
  int64_t rotary_dim = 0;  ///< even; the first dimensions of a head
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  int64_t original_max_position = 0;  ///< yarn: the context of pre-training
  double beta_fast = 32;              ///< yarn: rotations in that context above which ...
  double beta_slow = 1;               ///< ... and below which the ramp between the two ends
  bool truncate = true;               ///< yarn: the ramp starts and ends at whole dimensions
  double attention_factor = 1;        ///< yarn: multiplies cos and sin

  bool operator==(const RopeConfig&) const = default;
};

/// The shape of a model, as its config.json states it under any of the spellings that transformers
/// 4 and 5 write. Every value is in a range such that no product of a tensor's dimensions, layers
/// and element bytes overflows int64.
struct ModelConfig {
  ModelFamily family = ModelFamily::kQwen3;
  int64_t hidden_size = 0;
  int64_t layers_count = 0;
  int64_t heads = 0;  ///< a multiple of kv_heads
  int64_t kv_heads = 0;
  int64_t head_dim = 0;               ///< even
  int64_t intermediate_size = 0;      ///< of dense layers
  int64_t moe_intermediate_size = 0;  ///< of one expert; 0 without experts
  int64_t experts_count = 0;          ///< 0 without experts
  int64_t experts_per_token = 0;
  bool norm_topk_prob = false;     ///< the chosen experts' weights are scaled to sum 1
  std::vector<bool> layer_is_moe;  ///< [layers_count]
  float rms_norm_eps = 0;
  int64_t vocab_size = 0;  ///< rows of the embedding; the tokenizer may know fewer
  bool tie_word_embeddings = false;
  int64_t max_position_embeddings = 0;
  std::vector<int32_t> eos_token_ids;     ///< may be empty; see also generation_config.json
  DType checkpoint_dtype = DType::kBF16;  ///< as stated; each tensor has its own
  RopeConfig rope;

  bool operator==(const ModelConfig&) const = default;
};

/// Reads the text of a config.json. What is absent takes transformers' default for the family,
/// except rope_theta, whose silent default would ruin a model. What this engine would compute
/// wrongly (sliding windows, biases, other activations, quantised weights) is refused by name.
Result<ModelConfig> parse_config(std::string_view json);

}  // namespace tandem::model
