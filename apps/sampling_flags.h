#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

#include "apps/load.h"
#include "engine/request.h"

namespace tandem::apps {

/// How a user wants tokens chosen; what is unset is the model's own recommendation.
struct SamplingOptions {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;  ///< unset: another one for every request
  uint32_t tokens_max = 0;       ///< 0: as many as the context holds
};

/// The flags of SamplingOptions.
void add_sampling_flags(CLI::App& verb, SamplingOptions& options);

/// How the model's generation_config wants tokens chosen, where it says.
engine::SamplingParams recommended_sampling(const ModelFolder& folder);

/// A request without id that ends at the model's stop tokens.
engine::Request request_of(const SamplingOptions& options, const ModelFolder& folder,
                           std::vector<TokenId> prompt);

}  // namespace tandem::apps
