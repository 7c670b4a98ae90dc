#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::ops {

inline constexpr int32_t kTopLogprobsMax = 20;

struct TokenBias {
  TokenId token;
  float bias;
};

struct TokenLogprob {
  TokenId token;
  float logprob;
};

/// How one row's token is chosen. Order: bias, repetition penalty, presence and frequency
/// penalties, temperature, then top_k, top_p and min_p, then one draw by inverse CDF over the kept
/// tokens in order of falling probability (lower ids first on ties). The random number is
/// Philox4x32-10 (Salmon et al., SC 2011) keyed by (seed, choice_index, position), so a row's token
/// depends on nothing but its row.
struct SampleRow {
  float temperature =
      1.0f;           ///< 0: the most likely token after bias and penalties, lowest id on ties
  int32_t top_k = 0;  ///< 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  float presence_penalty = 0.0f;    ///< subtracted once if generated
  float frequency_penalty = 0.0f;   ///< subtracted per occurrence in generated
  float repetition_penalty = 1.0f;  ///< prompt and generated: positive logits / it, negative * it
  uint64_t seed = 0;
  uint32_t choice_index = 0;
  uint32_t position = 0;  ///< of the token to choose
  std::span<const TokenBias> bias;
  std::span<const TokenId> prompt;
  std::span<const TokenId> generated;
  std::span<const TokenId> masked_tokens;  ///< never chosen
  int32_t logprobs_count = -1;             ///< -1: none; else the chosen token's and the top N
  int32_t vocabulary_limit = 0;            ///< ids from here on are never chosen
};

/// What came out of one row.
struct SampledRow {
  TokenId token = -1;
  bool finite = true;  ///< false: the logits hold NaN or +inf, or nothing could be chosen; no token
  float logprob = 0.0f;  ///< natural log of the softmax of the raw logits; with logprobs_count >= 0
  int32_t top_count = 0;
  std::array<TokenLogprob, kTopLogprobsMax> top_storage;  ///< most likely first

  std::span<const TokenLogprob> top() const {
    return {top_storage.data(), static_cast<size_t>(top_count)};
  }
};

struct SampleArgs {
  TensorView<const float, 2> logits;  ///< [rows, vocabulary]
  std::span<const SampleRow> rows;    ///< [rows]
  std::span<SampledRow> out;          ///< [rows]
};

/// Allocates nothing once its scratch has seen a row of each kind.
Result<void> sample(Stream& stream, const SampleArgs& args);

}  // namespace tandem::ops
