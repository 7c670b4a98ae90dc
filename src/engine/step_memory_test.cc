// Goal: the memory that is told before loading is the memory that is taken.
// Method: models/tiny-moe, and small random checkpoints that add what it lacks (dense layers, tied
// embeddings, odd sizes), in f32 and bf16: bytes on the device after each part is loaded, against
// the plan made from the config alone.
#include "engine/step_memory.h"

#include <gtest/gtest.h>

#include "cpu/cpu_device.h"
#include "engine/model_runner.h"
#include "engine/scorer.h"
#include "model/model_files.h"
#include "model/random_source.h"
#include "model/safetensors_source.h"

namespace tandem::engine {
namespace {

constexpr Limits kLimits{.model_length_max = 333,
                         .sequences_max = 7,
                         .step_tokens_max = 45,
                         .page_tokens = 5,
                         .pages_total = 101,
                         .vocabulary_size = 100,
                         .tokenizer_size = 90};

class Memory : public ::testing::TestWithParam<DType> {
 protected:
  void check(const model::ModelConfig& config, model::WeightSource& source) {
    ASSERT_EQ(device_->bytes_allocated(), 0u);
    const model::Qwen3::Options options{.compute = GetParam(),
                                        .positions_max = kLimits.model_length_max};
    const auto model = model::Qwen3::load(*device_, config, source, options);
    ASSERT_TRUE(model.ok()) << model.error().what;
    const size_t weights = device_->bytes_allocated();
    EXPECT_EQ(weights, model::Qwen3::bytes_needed(config, options).total());

    const StepMemory::Options step = StepMemory::options_of(kLimits, GetParam());
    const StepMemory::Bytes planned = StepMemory::bytes_needed(config, step);
    {
      const KvStorage kv = KvStorage::create(*device_, config,
                                             {.dtype = GetParam(),
                                              .pages_count = kLimits.pages_total,
                                              .page_tokens = kLimits.page_tokens})
                               .value();
      EXPECT_EQ(device_->bytes_allocated() - weights, planned.kv);
    }
    {
      const auto runner =
          ModelRunner::create(*device_, **model, {.limits = kLimits, .kv_dtype = GetParam()});
      ASSERT_TRUE(runner.ok()) << runner.error().what;
      EXPECT_EQ(device_->bytes_allocated() - weights, planned.total());
    }
    const Scorer::Options scoring{.model_length_max = 333, .kv_dtype = GetParam()};
    const auto scorer = Scorer::create(*device_, **model, scoring);
    ASSERT_TRUE(scorer.ok()) << scorer.error().what;
    EXPECT_EQ(device_->bytes_allocated() - weights,
              StepMemory::bytes_needed(config, Scorer::memory_of(scoring)).total());
  }

  std::unique_ptr<cpu::CpuDevice> device_ = cpu::CpuDevice::create({.threads_count = 2}).value();
};

TEST_P(Memory, OfTinyMoeIsAsPlanned) {
  const auto files = model::ModelFiles::open("models/tiny-moe");
  ASSERT_TRUE(files.ok()) << files.error().what;
  auto source = model::SafetensorsSource::open("models/tiny-moe");
  ASSERT_TRUE(source.ok()) << source.error().what;
  check(files->config, *source);
  EXPECT_EQ(device_->bytes_allocated(), 0u);  // all of it came back
}

TEST_P(Memory, OfDenseLayersAndTiedEmbeddingsIsAsPlanned) {
  for (const char* tied : {"true", "false"}) {
    const auto config = model::parse_config(
        std::string(R"({"model_type": "qwen3_moe", "rope_theta": 10000, "hidden_size": 66,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10,
        "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 17,
        "intermediate_size": 49, "vocab_size": 100, "mlp_only_layers": [1],
        "tie_word_embeddings": )") +
        tied + "}");
    ASSERT_TRUE(config.ok()) << config.error().what;
    model::RandomSource source(*config, 1);
    check(*config, source);
  }
}

INSTANTIATE_TEST_SUITE_P(Compute, Memory, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return dtype_name(info.param); });

}  // namespace
}  // namespace tandem::engine
