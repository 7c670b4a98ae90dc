#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"

namespace tandem::model {

/// What the makers of a model recommend for requests that leave a field unset; from
/// generation_config.json, nothing set when that file is absent.
struct GenerationDefaults {
  std::optional<float> temperature;  ///< 0 when the file says `do_sample: false`
  std::optional<int32_t> top_k;      ///< 0 keeps all
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::vector<int32_t> eos_token_ids;
};

/// Reads the text of a generation_config.json. Ids must be rows of a vocabulary of `vocab_size`.
Result<GenerationDefaults> parse_generation_config(std::string_view json, int64_t vocab_size);

/// A model folder in Hugging Face layout: its small files read, its other files located. Weights
/// are opened apart (safetensors_source.h), since a benchmark runs without any.
struct ModelFiles {
  static Result<ModelFiles> open(const std::filesystem::path& folder);

  std::filesystem::path folder;
  ModelConfig config;
  GenerationDefaults generation;
  /// What ends a turn: the ids of both files, since they disagree in some released models. The
  /// tokenizer's eos_token belongs to them too.
  std::vector<int32_t> stop_token_ids;

  std::optional<std::filesystem::path> tokenizer;         ///< tokenizer.json
  std::optional<std::filesystem::path> tokenizer_config;  ///< tokenizer_config.json
  std::optional<std::filesystem::path> chat_template;     ///< chat_template.jinja; it wins over the
                                                          ///< one inside tokenizer_config.json
};

}  // namespace tandem::model
