#include "engine/model_runner.h"

#include <algorithm>
#include <atomic>

namespace tandem::engine {

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(Device& device, const model::Qwen3& model,
                                                         const Options& options) {
  const Limits& l = options.limits;
  std::unique_ptr<ModelRunner> runner(new ModelRunner(model, options));
  runner->stream_ = TANDEM_TRY(device.make_stream());
  runner->memory_ = TANDEM_TRY(
      StepMemory::create(device, model.shard(), StepMemory::options_of(l, options.kv_dtype)));
  runner->sample_rows_.reserve(l.sequences_max);
  TANDEM_TRY(runner->warm_up());
  runner->is_warm_ = true;
  runner->warm_up_pairs_ = runner->memory_.activations.expert_pairs;
  return runner;
}

void ModelRunner::append_ranks(std::vector<RankStatus>& ranks) const {
  ranks.push_back(rank_status(0, tally_row(tally_, nullptr)));
}

Result<void> ModelRunner::run(uint64_t step, std::span<const BatchItem> items,
                              std::span<ops::SampledRow> sampled) {
  TANDEM_TRY(forward(step, prepare(items)));
  return sample(sampled);
}

kv::KvLayout ModelRunner::kv_layout() const {
  return KvStorage::group_layout(model_.shard(), {.dtype = options_.kv_dtype,
                                                  .pages_count = options_.limits.pages_total,
                                                  .page_tokens = options_.limits.page_tokens});
}

model::StepInput ModelRunner::prepare(std::span<const BatchItem> items) {
  memory_.tensors.clear();
  sample_rows_.clear();
  for (const BatchItem& item : items) {
    memory_.tensors.append(item.tokens, item.start, item.pages, item.sample != nullptr ? 1 : 0);
    if (item.sample != nullptr) sample_rows_.push_back(*item.sample);
  }
  rows_count_ = static_cast<int64_t>(sample_rows_.size());
  return memory_.tensors.input();
}

uint64_t ModelRunner::layer_progress() const {
  return std::atomic_ref(*memory_.progress.as<uint64_t>()).load(std::memory_order_acquire);
}

Result<void> ModelRunner::forward(uint64_t step, model::StepInput input) {
  if (step > 0) {
    input.progress = TensorView<uint64_t, 1>::make(memory_.progress.as<uint64_t>(), {1});
    input.step = step;
  }
  TANDEM_TRY(
      model_.forward(*stream_, input, memory_.kv.pools(), memory_.activations, options_.comm));
  if (is_warm_) {
    tally_.count_step(static_cast<uint64_t>(input.tokens.size()),
                      memory_.activations.expert_pairs - warm_up_pairs_);
  }
  return {};
}

std::optional<model::Qwen3::LostExpert> ModelRunner::lost_expert_of(size_t item) const {
  const auto starts = memory_.tensors.input().query_start;
  const auto index = static_cast<int64_t>(item);
  return model_.lost_expert_of(memory_.activations, {starts[index], starts[index + 1]});
}

Result<void> ModelRunner::sample(std::span<ops::SampledRow> sampled) {
  TANDEM_CHECK(sampled.size() == sample_rows_.size(), "one result per sampling item");
  if (sampled.empty()) return {};
  return ops::sample(*stream_, {.logits = last_logits(), .rows = sample_rows_, .out = sampled});
}

/// Two steps over token 0, each sequence on pages of its own: as many prompt tokens as a step can
/// compute, then one token of as many sequences as can run at once. Every scratch area grows to its
/// final size. What they leave in the KV pages is overwritten before it can be read.
Result<void> ModelRunner::warm_up() {
  const Limits& l = options_.limits;
  std::vector<PageId> pages(l.pages_total);
  for (uint32_t i = 0; i < l.pages_total; ++i) pages[i] = PageId{i};
  const std::vector<TokenId> tokens(std::min(l.step_tokens_max, l.model_length_max), 0);
  const ops::SampleRow greedy{.temperature = 0.0f,
                              .vocabulary_limit = static_cast<int32_t>(l.tokenizer_size)};
  std::vector<ops::SampledRow> sampled(l.sequences_max);
  std::vector<BatchItem> items;
  const auto run_prompts = [&](uint32_t step_tokens, size_t prompt_tokens_max) -> Result<void> {
    items.clear();
    for (std::span<const PageId> left = pages;
         step_tokens > 0 && !left.empty() && items.size() < l.sequences_max;) {
      const size_t prompt =
          std::min({size_t{step_tokens}, prompt_tokens_max, left.size() * l.page_tokens});
      const size_t used = (prompt + l.page_tokens - 1) / l.page_tokens;
      items.push_back({.tokens = std::span(tokens).first(prompt),
                       .pages = left.first(used),
                       .sample = &greedy});
      step_tokens -= static_cast<uint32_t>(prompt);
      left = left.subspan(used);
    }
    return run(0, items, std::span(sampled).first(items.size()));
  };
  TANDEM_TRY(run_prompts(l.step_tokens_max, tokens.size()));
  return run_prompts(l.sequences_max, 1);
}

}  // namespace tandem::engine
