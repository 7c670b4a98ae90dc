// Goal: a plan fits exactly when all its parts do, and the way out that it offers is one.
// Method: models of made-up shapes on machines of made-up sizes; flags of an advice are put into a
// new plan. That plans equal allocations is shown by engine/step_memory_test.cc.
#include "apps/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "apps/run_engine.h"

namespace tandem::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kGiB = size_t{1} << 30;

model::ModelConfig config_of_30b() {
  return model::parse_config(R"({"model_type": "qwen3_moe", "rope_theta": 1000000,
      "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
      "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
      "moe_intermediate_size": 768, "intermediate_size": 6144, "vocab_size": 151936,
      "max_position_embeddings": 262144})")
      .value();
}

class MemoryPlanTest : public ::testing::Test {
 protected:
  MemoryDemand demand(const EngineOptions& options, uint32_t length,
                      DType compute = DType::kBF16) const {
    const engine::Limits limits = limits_of(options, config_, length, 0).value();
    return {.config = config_,
            .compute = compute,
            .model_length_max = length,
            .step = engine::StepMemory::options_of(limits, compute),
            .threads_count = 8,
            .size_flags = SizeFlags::kLengthAndCache};
  }
  static MemoryPlan on(size_t bytes, const MemoryDemand& demand) {
    return plan_memory(demand, {.machine_bytes = bytes, .group_bytes = std::nullopt});
  }
  /// The number behind `flag` in an advice; `absent` when the advice does not name it.
  static uint32_t advised(const std::string& advice, const std::string& flag, uint32_t absent) {
    const size_t at = advice.find(flag + " ");
    return at == std::string::npos
               ? absent
               : static_cast<uint32_t>(std::atoll(advice.c_str() + at + flag.size() + 1));
  }

  const model::ModelConfig config_ = config_of_30b();
};

TEST_F(MemoryPlanTest, CountsCopiesOfExpertsAndTheSpareLayer) {
  const auto experts_of = [&](const model::Layout& layout) {
    MemoryDemand d = demand({}, 4096);
    d.layout = layout;
    d.ranks_count = layout.ranks_count();
    return on(0, d).weights[model::WeightPart::kExperts];
  };
  const size_t plain = experts_of({.data_parallel = 4});
  const size_t one = plain / (size_t{48} * 128);  // an expert of one layer
  EXPECT_EQ(experts_of({.data_parallel = 4, .redundant_experts = 8}), plain + 8 * 48 * one);
  EXPECT_EQ(experts_of({.data_parallel = 4, .redundant_experts = 8, .rebalances_experts = true}),
            plain + 8 * 48 * one + (128 + 8) * one);
}

TEST_F(MemoryPlanTest, FitsToTheByte) {
  const MemoryDemand d = demand({}, 4096);
  const size_t needed = on(0, d).needed_bytes();
  EXPECT_GT(needed, 57 * kGiB);  // 30.5 thousand million parameters of two bytes
  EXPECT_LT(needed, 62 * kGiB);
  EXPECT_TRUE(on(needed, d).fits());
  EXPECT_FALSE(on(needed - 1, d).fits());
}

TEST_F(MemoryPlanTest, TheTighterOfMachineAndGroupCounts) {
  const MemoryDemand d = demand({}, 4096);
  const size_t needed = on(0, d).needed_bytes();
  EXPECT_FALSE(plan_memory(d, {.machine_bytes = 2 * needed, .group_bytes = needed - 1}).fits());
  EXPECT_FALSE(plan_memory(d, {.machine_bytes = needed - 1, .group_bytes = 2 * needed}).fits());
  const MemoryPlan tight = plan_memory(d, {.machine_bytes = 2 * needed, .group_bytes = needed});
  EXPECT_TRUE(tight.fits());
  EXPECT_THAT(memory_table(d, tight), HasSubstr("control group"));
}

TEST_F(MemoryPlanTest, AnAdviceIsAWayOut) {
  // 262,144 tokens of 96 KiB, four times: 96 GiB beside 57 GiB of weights.
  for (const size_t machine : {60 * kGiB, 64 * kGiB, 80 * kGiB, 128 * kGiB}) {
    const MemoryDemand wish = demand({}, 262144);
    const MemoryPlan plan = on(machine, wish);
    ASSERT_FALSE(plan.fits());
    const std::string advice = memory_fix(wish, plan);
    EXPECT_THAT(advice, StartsWith("It fits with"));
    const MemoryDemand advised_demand =
        demand({.cache_tokens = advised(advice, "--kv-cache-tokens", 0)},
               advised(advice, "--max-model-len", 262144));
    EXPECT_TRUE(on(machine, advised_demand).fits()) << advice;
  }
}

TEST_F(MemoryPlanTest, SidecarsAreARecordPerPageLayerAndHeadOfARank) {
  MemoryDemand d = demand({}, 4096);
  d.layout = {.tensor_parallel = 2, .data_parallel = 2};
  d.ranks_count = 4;
  EXPECT_EQ(on(0, d).sidecar_bytes, 0u);
  const size_t without = on(0, d).needed_bytes();
  d.receives_kv = true;
  const auto pages = static_cast<size_t>(d.step.pages_total);
  EXPECT_EQ(on(0, d).sidecar_bytes, pages * 24 * 2 * 48 * (2 * 4)) << "four heads, in two groups";
  EXPECT_EQ(on(0, d).needed_bytes(), without + on(0, d).sidecar_bytes);
  EXPECT_THAT(memory_table(d, on(0, d)), HasSubstr("sidecars"));
}

TEST_F(MemoryPlanTest, AnAdviceCountsSidecars) {
  // Pages of one token: a record weighs as much as a tenth of what it proves.
  MemoryDemand wish = demand({.page_tokens = 1}, 262144);
  wish.receives_kv = true;
  const std::string advice = memory_fix(wish, on(80 * kGiB, wish));
  MemoryDemand advised_demand =
      demand({.page_tokens = 1, .cache_tokens = advised(advice, "--kv-cache-tokens", 0)},
             advised(advice, "--max-model-len", 262144));
  advised_demand.receives_kv = true;
  EXPECT_TRUE(on(80 * kGiB, advised_demand).fits()) << advice;
}

TEST_F(MemoryPlanTest, AVerbWithoutACacheFlagIsToldTheLength) {
  MemoryDemand wish = demand({.sequences_max = 1}, 262144);
  wish.size_flags = SizeFlags::kLength;
  const std::string advice = memory_fix(wish, on(64 * kGiB, wish));
  EXPECT_EQ(advice.find("--kv-cache-tokens"), std::string::npos) << advice;
  const MemoryDemand shorter =
      demand({.sequences_max = 1}, advised(advice, "--max-model-len", 262144));
  EXPECT_TRUE(on(64 * kGiB, shorter).fits()) << advice;
}

TEST_F(MemoryPlanTest, WeightsThatDoNotFitAreSaidToBeTheReason) {
  const MemoryDemand wide = demand({}, 4096, DType::kF32);
  EXPECT_THAT(memory_fix(wide, on(64 * kGiB, wide)), HasSubstr("--dtype bf16"));
  const MemoryDemand narrow = demand({}, 4096);
  EXPECT_THAT(memory_fix(narrow, on(32 * kGiB, narrow)), HasSubstr("The weights alone"));
}

TEST_F(MemoryPlanTest, ALargeStepIsSaidToBeTheReason) {
  const MemoryDemand d = demand({.step_tokens_max = 1 << 20}, 4096);
  EXPECT_THAT(memory_fix(d, on(64 * kGiB, d)), HasSubstr("--max-num-batched-tokens"));
}

TEST(HandoffLimits, AreAQuarterOfTheCacheOrWhatIsSaid) {
  const engine::Limits limits{.page_tokens = 16, .pages_total = 1000};
  const engine::Limits by_default = with_handoffs(limits, {});
  EXPECT_EQ(by_default.leases_max, 256u);
  EXPECT_EQ(by_default.quarantine_pages_max, 250u);
  const engine::Limits said = with_handoffs(limits, {.leases_max = 7, .quarantine_tokens_max = 65});
  EXPECT_EQ(said.leases_max, 7u);
  EXPECT_EQ(said.quarantine_pages_max, 4u);
  EXPECT_EQ(with_handoffs({.page_tokens = 16, .pages_total = 3}, {}).quarantine_pages_max, 1u);
}

TEST(BytesText, HasOneDecimalAndTheRightUnit) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(5 * kGiB), "5.0 GiB");
}

}  // namespace
}  // namespace tandem::apps
