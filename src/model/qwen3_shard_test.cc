// Goal: a rank reads only the bytes that it keeps. Method: a source that counts what it is asked
// for, on configs with experts, dense layers and both, against a count made from shapes alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cpu/cpu_device.h"
#include "model/qwen3.h"
#include "model/random_source.h"

namespace tandem::model {
namespace {

/// Counts bytes by asking: a whole tensor only where a rank keeps all of it.
class CountingSource final : public WeightSource {
 public:
  explicit CountingSource(const ModelConfig& config) : source_(config, 1) {}

  std::vector<std::string> names() const override { return source_.names(); }
  Result<WeightInfo> describe(const std::string& name) override { return source_.describe(name); }
  void release(const std::string& name) override { source_.release(name); }
  Result<WeightView> tensor(const std::string& name) override {
    const WeightView view = TANDEM_TRY(source_.tensor(name));
    count(view);
    return view;
  }
  Result<WeightView> slice(const std::string& name, const WeightSlice& part) override {
    const WeightView view = TANDEM_TRY(source_.slice(name, part));
    count(view);
    return view;
  }
  size_t elements = 0;

 private:
  void count(const WeightView& view) {
    size_t product = 1;
    for (int64_t d : view.shape) product *= static_cast<size_t>(d);
    elements += product;
  }
  RandomSource source_;
};

ModelConfig mixed_config() {
  ModelConfig c;
  c.family = ModelFamily::kQwen3Moe;
  c.hidden_size = 64;
  c.layers_count = 2;
  c.heads = 8;
  c.kv_heads = 4;
  c.head_dim = 16;
  c.intermediate_size = 1024;
  c.moe_intermediate_size = 32;
  c.experts_count = 8;
  c.experts_per_token = 2;
  c.layer_is_moe = {false, true};
  c.rms_norm_eps = 1e-6f;
  c.vocab_size = 101;
  c.max_position_embeddings = 64;
  c.rope = {.theta = 10000.0, .rotary_dim = 16};
  return c;
}

size_t elements_read(const ModelConfig& config, const Layout& layout, int rank) {
  CountingSource source(config);
  auto device = cpu::CpuDevice::create({.threads_count = 1}).value();
  const Shard shard = Shard::create(config, layout, rank).value();
  const auto model = Qwen3::load(*device, shard, source, {.positions_max = 64});
  EXPECT_TRUE(model.ok()) << model.error().what;
  return source.elements;
}

TEST(Qwen3Shard, OneRankReadsEveryTensorOnce) {
  size_t all = 0;
  for (const ExpectedTensor& tensor : expected_tensors(mixed_config())) all += tensor.elements();
  EXPECT_EQ(elements_read(mixed_config(), {}, 0), all);
}

TEST(Qwen3Shard, ATensorParallelRankReadsItsPart) {
  // Rank 5 of 8: one query head, one KV head that rank 4 has too, one cut of the dense columns, one
  // expert, and 13 of 101 rows of the vocabulary (the first five ranks); norms and router whole.
  const size_t norms = 2 * (2 * 64 + 2 * 16) + 64;
  const size_t attention = 2 * (4 * 16 * 64);
  const size_t dense = 3 * 128 * 64;
  const size_t moe = 8 * 64 + 3 * 32 * 64;
  const auto read = [](int rank) {
    return elements_read(mixed_config(), {.tensor_parallel = 8}, rank);
  };
  EXPECT_EQ(read(5), norms + attention + dense + moe + 2 * 12 * 64);
  EXPECT_EQ(read(4), norms + attention + dense + moe + 2 * 13 * 64);
}

TEST(Qwen3Shard, ADataParallelRankReadsItsExpertsAndAllElse) {
  const size_t experts = 8 * 3 * 32 * 64;
  const size_t all = elements_read(mixed_config(), {}, 0);
  EXPECT_EQ(elements_read(mixed_config(), {.data_parallel = 4}, 3), all - experts / 4 * 3);
}

TEST(Qwen3Shard, ARankReadsOnlyTheExpertsThatComeToIt) {
  CountingSource source(mixed_config());
  auto device = cpu::CpuDevice::create({.threads_count = 1}).value();
  const Layout layout{.data_parallel = 2, .redundant_experts = 2, .rebalances_experts = true};
  const Shard shard = Shard::create(mixed_config(), layout, 1).value();
  const auto model = Qwen3::load(*device, shard, source, {.positions_max = 64}).value();
  EXPECT_LE(device->bytes_allocated(),
            Qwen3::bytes_needed(shard, {.positions_max = 64}).total() + 4096);
  ExpertReader experts(model->config(), source);

  const comm::ExpertPlacement start = model->expert_placement(1);
  ASSERT_THAT(start.experts_of(1), testing::ElementsAre(5, 6, 7, 0, 1));
  const comm::ExpertPlacement plan = start.holding({0, 1, 2, 3, 5, 4, 6, 3, 0, 1});
  source.elements = 0;
  ASSERT_TRUE(model->prepare_experts(experts, 1, plan).ok());
  EXPECT_EQ(source.elements, 2u * 3 * 32 * 64) << "experts 4 and 3";
  EXPECT_EQ(model->expert_placement(1), start) << "not before the switch";
  model->switch_experts(1);
  EXPECT_EQ(model->expert_placement(1), plan);
}

}  // namespace
}  // namespace tandem::model
