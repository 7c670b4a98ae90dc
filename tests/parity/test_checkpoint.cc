#include "tests/parity/test_checkpoint.h"

#include <cmath>
#include <span>

#include "model/model_files.h"
#include "model/safetensors_source.h"

namespace tandem::parity {

Result<TestCheckpoint> TestCheckpoint::load(const model::ModelConfig& config,
                                            model::WeightSource& source, DType compute,
                                            uint32_t length_max) {
  TestCheckpoint made;
  made.device = TANDEM_TRY(cpu::CpuDevice::create({.threads_count = 2}));
  made.model = TANDEM_TRY(model::Qwen3::load(
      *made.device, config, source, {.compute = compute, .positions_max = int64_t{length_max}}));
  // Chunks that do not end where attention splits do.
  made.scorer = TANDEM_TRY(engine::Scorer::create(
      *made.device, *made.model,
      {.model_length_max = length_max, .chunk_tokens = 200, .kv_dtype = compute}));
  return made;
}

Result<TestCheckpoint> TestCheckpoint::load(const std::string& folder, DType compute,
                                            uint32_t length_max) {
  const model::ModelFiles files = TANDEM_TRY(model::ModelFiles::open(folder));
  model::SafetensorsSource source = TANDEM_TRY(model::SafetensorsSource::open(folder));
  return load(files.config, source, compute, length_max);
}

std::vector<ScoredRow> compare(TestCheckpoint& checkpoint, const GoldenLogits& golden) {
  const model::ModelConfig& config = checkpoint.model->config();
  const auto vocabulary = static_cast<size_t>(config.vocab_size);
  TANDEM_CHECK(golden.logits.size() == golden.rows.size() * vocabulary, "rows of another width");
  std::vector<ScoredRow> result;
  const auto visit = [&](size_t position, std::span<const float> logits) {
    const size_t row = result.size();
    if (row == golden.rows.size() || static_cast<size_t>(golden.rows[row]) != position) return;
    ScoredRow scored;
    for (size_t i = 0; i < vocabulary; ++i) {
      const double expected = golden.logits[row * vocabulary + i];
      const double difference = double{logits[i]} - expected;
      scored.squared_error += difference * difference;
      scored.squared_norm += expected * expected;
    }
    for (int64_t layer = 0; layer < config.layers_count; ++layer) {
      const auto experts = checkpoint.scorer->experts(layer);
      scored.experts.insert(scored.experts.end(), experts.begin(), experts.end());
    }
    result.push_back(std::move(scored));
  };
  checkpoint.scorer->score(golden.tokens, visit).value();
  TANDEM_CHECK(result.size() == golden.rows.size(), "the golden names rows beyond its text");
  return result;
}

double Pooled::error() const {
  return std::sqrt(squared_error / squared_norm);
}

}  // namespace tandem::parity
