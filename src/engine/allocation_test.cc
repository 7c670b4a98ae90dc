// Goal: a step takes no memory from the heap, whatever it decodes or prefills (README.md, promise).
// Method: this executable counts operator new and aligned_alloc on all threads; an engine over the
// trained tiny-moe runs to a steady state of full batches, then the count must stand still. The
// first steps after start count too: create() has warmed everything up. Over two ranks with copies
// of experts the same holds while none moves; that moves are seen shows that the test can fail.
#include <gtest/gtest.h>

#include <barrier>
#include <cstdlib>
#include <new>
#include <random>

#include "base/testing/count_allocations.h"
#include "comm/testing/run_ranks.h"
#include "engine/engine_core.h"
#include "engine/group_runner.h"
#include "engine/model_runner.h"
#include "engine/testing/tiny_moe.h"

// Where the scratch of ops comes from.
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) {
  ++tandem::allocations_count;
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

namespace tandem::engine {
namespace {

/// Looks at events and takes nothing from them.
class Counter final : public EventSink {
 public:
  void on_events(std::span<Event> events) override {
    for (const Event& event : events) {
      for (const GeneratedToken& token : event.tokens) top_count += token.top.size();
      tokens_count += event.tokens.size();
      if (event.finish) ++finished;
    }
  }
  size_t tokens_count = 0;
  size_t top_count = 0;
  size_t finished = 0;
};

constexpr uint32_t kSequences = 8;
constexpr Limits kLimits{.model_length_max = 640,
                         .sequences_max = kSequences,
                         .step_tokens_max = 64,
                         .page_tokens = 16,
                         .pages_total = kSequences * 40,
                         .vocabulary_size = testing::kTinyMoeVocabulary,
                         .tokenizer_size = testing::kTinyMoeVocabulary};

class Allocation : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    auto tiny = testing::load_tiny_moe(GetParam(), kLimits.model_length_max);
    ASSERT_TRUE(tiny.ok()) << tiny.error().what;
    tiny_ = std::move(*tiny);
  }

  void start(const Limits& limits = kLimits) {
    runner_ =
        ModelRunner::create(*tiny_.device, *tiny_.model, {.limits = limits, .kv_dtype = GetParam()})
            .value();
    core_ = EngineCore::create({.limits = limits, .now_us = [] { return int64_t{1}; }}, *runner_)
                .value();
  }

  void accept(size_t prompt_tokens, SamplingParams sampling) {
    Request request{.id = {next_id_++}, .sampling = std::move(sampling), .tokens_max = 100};
    request.prompt.resize(prompt_tokens);
    for (TokenId& token : request.prompt) token = static_cast<TokenId>(random_() % 4000);
    core_->accept(std::move(request), sink_, 0);
  }

  /// Allocations of so many steps.
  uint64_t count(size_t steps_count) {
    const uint64_t before = allocations_count;
    for (size_t i = 0; i < steps_count; ++i) core_->step();
    return allocations_count - before;
  }

  /// A full batch in decode: every sequence has had its first token.
  void fill(const SamplingParams& sampling) {
    start();
    for (uint32_t i = 0; i < kSequences; ++i) accept(5 + i, sampling);
    for (int turn = 0; turn < 3; ++turn) core_->step();
    ASSERT_EQ(core_->running_count(), kSequences);
    ASSERT_GE(sink_.tokens_count, kSequences);
  }

  testing::TinyMoe tiny_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<EngineCore> core_;
  Counter sink_;
  std::mt19937 random_{11};
  uint64_t next_id_ = 0;
};

TEST_P(Allocation, NoneInGreedyDecodeToTheEnd) {
  fill({.temperature = 0.0f});
  EXPECT_EQ(count(120), 0u);
  EXPECT_EQ(sink_.finished, kSequences);
  EXPECT_EQ(sink_.tokens_count, 100 * kSequences);
}

TEST_P(Allocation, NoneInSampledDecodeWithPenaltiesBiasAndLogprobs) {
  fill({.temperature = 0.9f,
        .top_k = 50,
        .top_p = 0.9f,
        .min_p = 0.01f,
        .presence_penalty = 0.5f,
        .frequency_penalty = 0.2f,
        .repetition_penalty = 1.1f,
        .seed = 5,
        .logit_bias = {{.token = 7, .bias = 1.0f}},
        .logprobs_count = 20});
  const size_t top_before = sink_.top_count;
  EXPECT_EQ(count(40), 0u);
  EXPECT_EQ(sink_.top_count - top_before, 40 * kSequences * 20) << "logprobs were made";
}

TEST_P(Allocation, NoneInChunkedPrefillBesideDecodes) {
  start();
  for (uint32_t i = 0; i + 1 < kSequences; ++i) accept(5, {.temperature = 0.0f});
  accept(539, {.temperature = 0.7f, .seed = 3, .logprobs_count = 3});
  core_->step();  // admits, which may allocate
  const size_t tokens_before = sink_.tokens_count;
  EXPECT_EQ(count(12), 0u) << "chunks of up to 57 tokens, over two parts of attention, then decode";
  EXPECT_GT(sink_.tokens_count, tokens_before + 12 * (kSequences - 1)) << "the prompt was done";
}

TEST_P(Allocation, NoneInTheLargestStepOfPromptsShorterThanIt) {
  constexpr uint32_t kMany = 48;
  Limits limits = kLimits;
  limits.model_length_max = 24;
  limits.sequences_max = kMany;
  limits.step_tokens_max = 1024;  // far more than one sequence can hold
  start(limits);
  for (uint32_t i = 0; i < kMany; ++i) accept(23, {.temperature = 0.0f});
  // Admission: each sequence reserves its list of tokens and of pages.
  EXPECT_LE(count(1), 2 * kMany);
  EXPECT_EQ(core_->counters().prompt_tokens, limits.step_tokens_max);
}

/// One of two ranks with an engine each, and copies of experts.
class BalancedRank {
 public:
  static constexpr model::Layout kLayout{
      .data_parallel = 2, .redundant_experts = 4, .rebalances_experts = true};

  BalancedRank(comm::SymmetricHeap& heap, DType compute, const BalanceLimits& balance) {
    const auto step = StepMemory::options_of(kLimits, compute);
    const auto config = model::ModelFiles::open("models/tiny-moe").value().config;
    const auto shard = model::Shard::create(config, kLayout, heap.rank()).value();
    const auto source = open_source().value();
    device_ = cpu::CpuDevice::create({.threads_count = 1}).value();
    model_ = model::Qwen3::load(*device_, shard, *source,
                                {.compute = compute, .positions_max = kLimits.model_length_max})
                 .value();
    peers_ = RankPeers::create({.rank = heap.rank(),
                                .heap = &heap,
                                .compute = compute,
                                .step = step,
                                .balance = balance,
                                .make_source = open_source},
                               *model_)
                 .value();
    runner_ = ModelRunner::create(
                  *device_, *model_,
                  {.limits = kLimits, .kv_dtype = compute, .comm = &peers_->links().comm()})
                  .value();
    peers_->start_balancing().value();
    group_ = std::make_unique<GroupRunner>(*runner_, *peers_, kLimits,
                                           [](const std::optional<Error>&) {});
    core_ = EngineCore::create({.limits = kLimits, .now_us = [] { return int64_t{1}; }}, *group_)
                .value();
  }

  void accept(Request request) { core_->accept(std::move(request), sink_, 0); }
  void step(int steps_count) {
    for (int i = 0; i < steps_count; ++i) core_->step();
  }
  uint64_t experts_moved() const { return peers_->balance_status().experts_moved; }

 private:
  static Result<std::unique_ptr<model::WeightSource>> open_source() {
    return std::unique_ptr<model::WeightSource>(new model::SafetensorsSource(
        TANDEM_TRY(model::SafetensorsSource::open("models/tiny-moe"))));
  }

  std::unique_ptr<cpu::CpuDevice> device_;
  std::unique_ptr<model::Qwen3> model_;
  std::unique_ptr<RankPeers> peers_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<GroupRunner> group_;
  std::unique_ptr<EngineCore> core_;
  Counter sink_;
};

struct OnTwoRanks {
  uint64_t allocations = 0;
  uint64_t experts_moved = 0;
};

/// 60 steps in which both ranks decode full batches.
OnTwoRanks decode_on_two_ranks(DType compute, const BalanceLimits& balance) {
  const auto config = model::ModelFiles::open("models/tiny-moe").value().config;
  const size_t heap_bytes =
      RankLinks::heap_bytes(model::Shard::create(config, BalancedRank::kLayout, 0).value(), compute,
                            StepMemory::options_of(kLimits, compute))
          .value();
  OnTwoRanks seen;
  std::barrier both(2);
  comm::expect_ranks(2, heap_bytes, [&](comm::SymmetricHeap& heap) -> Result<void> {
    BalancedRank rank(heap, compute, balance);
    for (uint32_t i = 0; i < kSequences; ++i) {
      Request request{.id = {i}, .sampling = {.temperature = 0.0f}, .tokens_max = 100};
      request.prompt.assign(5 + i, static_cast<TokenId>(17 * i + 3));
      rank.accept(std::move(request));
    }
    rank.step(20);
    both.arrive_and_wait();
    const uint64_t before = allocations_count;
    const uint64_t moved_before = rank.experts_moved();
    both.arrive_and_wait();
    rank.step(60);
    both.arrive_and_wait();
    if (heap.rank() == 0) {
      seen = {.allocations = allocations_count - before,
              .experts_moved = rank.experts_moved() - moved_before};
    }
    both.arrive_and_wait();
    return {};
  });
  return seen;
}

TEST_P(Allocation, NoneOverRanksWhileNoExpertMoves) {
  const OnTwoRanks still = decode_on_two_ranks(GetParam(), {.interval_steps = 1000});
  EXPECT_EQ(still.allocations, 0u);
  EXPECT_EQ(still.experts_moved, 0u);
  const OnTwoRanks moving = decode_on_two_ranks(GetParam(), {.interval_steps = 1});
  EXPECT_GT(moving.allocations, 0u);
  EXPECT_GT(moving.experts_moved, 0u);
}

TEST_P(Allocation, TheCounterWorks) {
  const uint64_t before = allocations_count;
  const std::vector<int> counted(10);
  EXPECT_GT(allocations_count, before);
  const uint64_t between = allocations_count;
  std::free(std::aligned_alloc(64, 64));
  EXPECT_GT(allocations_count, between);
}

INSTANTIATE_TEST_SUITE_P(Compute, Allocation, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return dtype_name(info.param); });

}  // namespace
}  // namespace tandem::engine
