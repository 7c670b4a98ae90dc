#include "engine/validate.h"

#include <fmt/format.h>

#include <cmath>

#include "ops/sample/sample.h"

namespace tandem::engine {
namespace {

Error invalid(std::string what) {
  return make_error(Code::kInvalidArgument, std::move(what));
}

Result<void> in_range(const char* field, float value, float low, float high) {
  if (value >= low && value <= high) return {};  // also refuses NaN
  return invalid(fmt::format("{} is {}; it must be in [{}, {}]", field, value, low, high));
}

Result<void> is_token(const char* field, TokenId token, uint32_t end) {
  if (token >= 0 && static_cast<uint32_t>(token) < end) return {};
  return invalid(fmt::format("{} holds token {}; the vocabulary is [0, {})", field, token, end));
}

Result<void> validate_sampling(const SamplingParams& s, const Limits& limits) {
  constexpr float kHuge = 1e6f;  // far above any use, far below overflow
  TANDEM_TRY(in_range("temperature", s.temperature, 0.0f, kHuge));
  TANDEM_TRY(in_range("top_p", s.top_p, 0.0f, 1.0f));
  if (s.top_p == 0.0f)
    return invalid("top_p is 0; it must be above 0 (use temperature 0 or top_k 1)");
  TANDEM_TRY(in_range("min_p", s.min_p, 0.0f, 1.0f));
  TANDEM_TRY(in_range("presence_penalty", s.presence_penalty, -2.0f, 2.0f));
  TANDEM_TRY(in_range("frequency_penalty", s.frequency_penalty, -2.0f, 2.0f));
  TANDEM_TRY(in_range("repetition_penalty", s.repetition_penalty, 1e-3f, kHuge));
  if (s.top_k < 0) return invalid(fmt::format("top_k is {}; it must be 0 (all) or more", s.top_k));
  if (s.logprobs_count < -1 || s.logprobs_count > ops::kTopLogprobsMax) {
    return invalid(fmt::format("logprobs is {}; it must be in [0, {}]", s.logprobs_count,
                               ops::kTopLogprobsMax));
  }
  for (const auto& bias : s.logit_bias) {
    TANDEM_TRY(is_token("logit_bias", bias.token, limits.tokenizer_size));
    TANDEM_TRY(in_range("logit_bias", bias.bias, -100.0f, 100.0f));
  }
  return {};
}

}  // namespace

Result<void> validate(const Limits& l) {
  // Far above any use, and low enough that no product of them overflows.
  constexpr uint32_t kStepTokensMax = 1 << 20;
  constexpr uint32_t kPageTokensMax = 4096;
  constexpr uint64_t kCacheTokensMax = uint64_t{1} << 31;  // step_tensors.cc: slots are int32
  if (l.model_length_max < 2)
    return invalid("--max-model-len must be 2 or more: one prompt token and one answer token");
  if (l.sequences_max == 0) return invalid("--max-num-seqs must be 1 or more");
  if (l.step_tokens_max < l.sequences_max) {
    return invalid(fmt::format(
        "--max-num-batched-tokens {} is below --max-num-seqs {}: a step must hold one token of "
        "every sequence",
        l.step_tokens_max, l.sequences_max));
  }
  if (l.step_tokens_max > kStepTokensMax) {
    return invalid(fmt::format("--max-num-batched-tokens {} is above the limit of {}",
                               l.step_tokens_max, kStepTokensMax));
  }
  if (l.page_tokens == 0 || l.page_tokens > kPageTokensMax) {
    return invalid(
        fmt::format("--block-size {}: it must be 1 to {} tokens", l.page_tokens, kPageTokensMax));
  }
  const uint64_t cache_tokens = uint64_t{l.pages_total} * l.page_tokens;
  if (cache_tokens > kCacheTokensMax) {
    return invalid(
        fmt::format("a KV cache of {} tokens is above the limit of {}: lower --kv-cache-tokens",
                    cache_tokens, kCacheTokensMax));
  }
  if (cache_tokens < l.model_length_max) {
    return make_error(
        Code::kResourceExhausted,
        fmt::format("the KV cache has {} pages of {} tokens, less than one sequence of {} tokens: "
                    "lower --max-model-len or raise --kv-cache-tokens",
                    l.pages_total, l.page_tokens, l.model_length_max));
  }
  return {};
}

Result<void> validate(const Request& request, const Limits& limits) {
  if (request.prompt.empty()) return invalid("the prompt is empty; send at least one token");
  if (request.prompt.size() >= limits.model_length_max) {
    return invalid(fmt::format(
        "the prompt has {} tokens; this server holds {} tokens of prompt and answer together, so a "
        "prompt may have {} at most: shorten it, or raise --max-model-len",
        request.prompt.size(), limits.model_length_max, limits.model_length_max - 1));
  }
  for (TokenId token : request.prompt)
    TANDEM_TRY(is_token("the prompt", token, limits.vocabulary_size));
  for (TokenId token : request.stop_tokens) {
    TANDEM_TRY(is_token("stop_token_ids", token, limits.vocabulary_size));
  }
  if (request.kv_way != KvWay::kHere && limits.leases_max == 0) {
    return invalid(
        "this engine takes part in no hand-off of K and V; start it with a role that does");
  }
  if (request.kv_way == KvWay::kExport && request.prompt.size() < 2) {
    return invalid("the prompt has one token, whose K and V belong to the engine that generates");
  }
  if (request.tokens_max == 0) return invalid("max_tokens is 0; it must be 1 or more");
  if (request.tokens_min > request.tokens_max) {
    return invalid(fmt::format("min_tokens is {}, more than max_tokens {}", request.tokens_min,
                               request.tokens_max));
  }
  return validate_sampling(request.sampling, limits);
}

}  // namespace tandem::engine
