#include "engine/model_runner.h"

#include <algorithm>

namespace tandem::engine {

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(Device& device, const model::Qwen3& model,
                                                         const Options& options) {
  const Limits& l = options.limits;
  std::unique_ptr<ModelRunner> runner(new ModelRunner(model, options));
  runner->stream_ = TANDEM_TRY(device.make_stream());
  runner->memory_ = TANDEM_TRY(
      StepMemory::create(device, model.config(), StepMemory::options_of(l, options.kv_dtype)));
  runner->sample_rows_.reserve(l.sequences_max);
  TANDEM_TRY(runner->warm_up());
  return runner;
}

Result<void> ModelRunner::run(std::span<const BatchItem> items,
                              std::span<ops::SampledRow> sampled) {
  memory_.tensors.clear();
  sample_rows_.clear();
  for (const BatchItem& item : items) {
    memory_.tensors.append(item.tokens, item.start, item.pages, item.sample != nullptr ? 1 : 0);
    if (item.sample != nullptr) sample_rows_.push_back(*item.sample);
  }
  rows_count_ = static_cast<int64_t>(sample_rows_.size());
  TANDEM_CHECK(sampled.size() == sample_rows_.size(), "one result per sampling item");
  TANDEM_TRY(
      model_.forward(*stream_, memory_.tensors.input(), memory_.kv.pools(), memory_.activations));
  if (sampled.empty()) return {};
  return ops::sample(*stream_, {.logits = last_logits(), .rows = sample_rows_, .out = sampled});
}

/// Two steps over token 0: one prompt of the largest step, then one token of as many sequences as
/// run at once. Every scratch area grows to its final size. What they leave in the KV pages is
/// overwritten before it can be read.
Result<void> ModelRunner::warm_up() {
  const Limits& l = options_.limits;
  const uint32_t prompt = std::min(l.step_tokens_max, l.model_length_max);
  const std::vector<TokenId> tokens(prompt, 0);
  std::vector<PageId> pages;
  for (uint32_t i = 0; i * l.page_tokens < prompt; ++i) pages.push_back(PageId{i});
  const ops::SampleRow greedy{.temperature = 0.0f,
                              .vocabulary_limit = static_cast<int32_t>(l.tokenizer_size)};
  std::vector<ops::SampledRow> sampled(l.sequences_max);

  const BatchItem whole{.tokens = tokens, .pages = pages, .sample = &greedy};
  TANDEM_TRY(run({&whole, 1}, std::span(sampled).first(1)));
  const std::vector<BatchItem> singles(
      l.sequences_max, {.tokens = std::span(tokens).first(1), .pages = pages, .sample = &greedy});
  return run(singles, sampled);
}

}  // namespace tandem::engine
