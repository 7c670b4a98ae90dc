#include "engine/scorer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem::engine {

StepMemory::Options Scorer::memory_of(const Options& options) {
  const int64_t pages =
      (int64_t{options.model_length_max} + options.page_tokens - 1) / options.page_tokens;
  return {.kv_dtype = options.kv_dtype,
          .tokens_max = options.chunk_tokens,
          .sequences_max = 1,
          .rows_max = options.chunk_tokens,
          .pages_max = pages,
          .pages_total = pages,
          .page_tokens = options.page_tokens};
}

Result<std::unique_ptr<Scorer>> Scorer::create(Device& device, const model::Qwen3& model,
                                               const Options& options) {
  std::unique_ptr<Scorer> scorer(new Scorer(model, options));
  const StepMemory::Options memory = memory_of(options);
  scorer->stream_ = TANDEM_TRY(device.make_stream());
  scorer->memory_ = TANDEM_TRY(StepMemory::create(device, model.shard(), memory));
  for (uint32_t i = 0; i < memory.pages_total; ++i) scorer->pages_.push_back(PageId{i});
  return scorer;
}

Result<void> Scorer::score(std::span<const TokenId> tokens,
                           const std::function<void(size_t, std::span<const float>)>& visit) {
  if (tokens.empty()) return make_error(Code::kInvalidArgument, "no tokens to score");
  if (tokens.size() > options_.model_length_max) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("{} tokens are more than --max-model-len {}", tokens.size(),
                                  options_.model_length_max));
  }
  const int64_t vocabulary = model_.config().vocab_size;
  for (TokenId token : tokens) {
    if (token < 0 || token >= vocabulary) {
      return make_error(
          Code::kInvalidArgument,
          fmt::format("token {} is outside the vocabulary [0, {})", token, vocabulary));
    }
  }
  for (size_t start = 0; start < tokens.size();) {
    const size_t end = std::min(tokens.size(), start + options_.chunk_tokens);
    const auto count = static_cast<uint32_t>(end - start);
    memory_.tensors.clear();
    memory_.tensors.append(tokens.first(end), static_cast<uint32_t>(start), pages_, count);
    TANDEM_TRY(
        model_.forward(*stream_, memory_.tensors.input(), memory_.kv.pools(), memory_.activations));
    for (uint32_t i = 0; i < count; ++i) {
      row_ = int64_t{i};
      visit(start + i, {memory_.activations.logits.row(i), static_cast<size_t>(vocabulary)});
    }
    start = end;
  }
  return {};
}

std::span<const int32_t> Scorer::experts(int64_t layer) const {
  const model::ModelConfig& config = model_.config();
  if (!config.layer_is_moe[static_cast<size_t>(layer)]) return {};
  const int64_t k = config.experts_per_token;
  return {memory_.activations.expert_ids.row(layer) + row_ * k, static_cast<size_t>(k)};
}

double nats_of(std::span<const float> logits, TokenId token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - top);
  return std::log(sum) + top - static_cast<double>(logits[static_cast<size_t>(token)]);
}

}  // namespace tandem::engine
