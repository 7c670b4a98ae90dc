#include "tests/ranks/rank_scorer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "comm/plan_experts.h"

namespace tandem::ranks {
namespace {

constexpr int64_t kPageTokens = 16;
constexpr model::RankComm::Limits kLimits{.tokens_max = RankScorer::kChunkTokens,
                                          .rows_max = RankScorer::kChunkTokens};

}  // namespace

Result<std::unique_ptr<RankScorer>> RankScorer::create(const ScoredModel& model,
                                                       const model::Layout& layout, int rank,
                                                       comm::SymmetricHeap* heap) {
  auto scorer = std::make_unique<RankScorer>();
  const auto shard = TANDEM_TRY(model::Shard::create(model.config, layout, rank));
  scorer->source_ = TANDEM_TRY(model.make_source());
  scorer->device_ = TANDEM_TRY(cpu::CpuDevice::create({.threads_count = 1}));
  scorer->model_ =
      TANDEM_TRY(model::Qwen3::load(*scorer->device_, shard, *scorer->source_,
                                    {.compute = model.compute, .positions_max = kLengthMax}));
  scorer->experts_ =
      std::make_unique<model::ExpertReader>(scorer->model_->config(), *scorer->source_);
  scorer->stream_ = TANDEM_TRY(scorer->device_->make_stream());
  if (!shard.is_whole()) {
    scorer->comm_ = TANDEM_TRY(model::RankComm::create(*heap, shard, model.compute, kLimits));
  }
  constexpr int64_t kPages = kLengthMax / kPageTokens;
  scorer->memory_ = TANDEM_TRY(engine::StepMemory::create(*scorer->device_, shard,
                                                          {.kv_dtype = model.compute,
                                                           .tokens_max = kLimits.tokens_max,
                                                           .sequences_max = 1,
                                                           .rows_max = kLimits.rows_max,
                                                           .pages_max = kPages,
                                                           .pages_total = kPages,
                                                           .page_tokens = kPageTokens}));
  for (uint32_t page = 0; page < kPages; ++page) scorer->pages_.push_back(PageId{page});
  return scorer;
}

size_t RankScorer::heap_bytes(const ScoredModel& model, const model::Layout& layout) {
  const auto shard = model::Shard::create(model.config, layout, 0).value();
  return model::RankComm::heap_bytes(shard, model.compute, kLimits).value();
}

int RankScorer::steps_of(std::span<const Text> texts) {
  size_t steps = 0;
  for (const Text& text : texts) steps += (text.size() + kChunkTokens - 1) / kChunkTokens;
  return static_cast<int>(steps);
}

Result<std::vector<uint64_t>> RankScorer::score(std::span<const Text> texts) {
  std::vector<uint64_t> digests;
  for (const Text& text : texts) {
    uint64_t digest = text.size();
    for (size_t start = 0; start < text.size();) {
      const size_t end = std::min(text.size(), start + kChunkTokens);
      const auto rows = static_cast<uint32_t>(end - start);
      memory_.tensors.clear();
      memory_.tensors.append(std::span(text).first(end), static_cast<uint32_t>(start), pages_,
                             rows);
      TANDEM_TRY(step());
      const auto made = memory_.activations.logits.head(rows);
      for (int64_t i = 0; i < made.size(); ++i) {
        digest = (digest ^ std::bit_cast<uint32_t>(made.data[i])) * 0x9e3779b97f4a7c15u;
        digest ^= digest >> 32;
      }
      start = end;
    }
    digests.push_back(digest);
  }
  return digests;
}

Result<void> RankScorer::join(int steps) {
  memory_.tensors.clear();
  for (int i = 0; i < steps; ++i) TANDEM_TRY(step());
  return {};
}

Result<void> RankScorer::replace_experts() {
  const model::ModelConfig& c = model_->config();
  std::vector<uint64_t> loads(static_cast<size_t>(c.experts_count));
  for (int64_t layer = 0; layer < c.layers_count; ++layer) {
    if (!c.layer_is_moe[static_cast<size_t>(layer)]) continue;
    for (uint64_t& load : loads) load = random_() % 1000;
    const comm::ExpertPlacement& current = model_->expert_placement(layer);
    comm::ExpertPlacement plan = comm::plan_experts(current, loads);
    moves_count_ += comm::moved_slots(current, plan);
    TANDEM_TRY(model_->prepare_experts(*experts_, layer, std::move(plan)));
    model_->switch_experts(layer);
  }
  return {};
}

Result<void> RankScorer::step() {
  if (shard().layout.rebalances_experts) TANDEM_TRY(replace_experts());
  return model_->forward(*stream_, memory_.tensors.input(), memory_.kv.pools(), memory_.activations,
                         comm_.get());
}

}  // namespace tandem::ranks
