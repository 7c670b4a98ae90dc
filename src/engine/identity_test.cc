// Goal: a request's tokens and logprobs are the same bits alone and in a crowd, whatever the chunk
// and page size, with prefix hits and after preemption (contracts: numerics).
// Method: requests over the trained tiny-moe, seeded and greedy, each first alone; then all at once
// under settings that force chunks, hits and preemptions, compared bit by bit.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <random>

#include "cpu/cpu_device.h"
#include "engine/engine_core.h"
#include "engine/model_runner.h"
#include "model/model_files.h"
#include "model/safetensors_source.h"

namespace tandem::engine {
namespace {

constexpr uint32_t kLengthMax = 320;

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> logprob_bits;
  bool operator==(const Answer&) const = default;
};

class Collector final : public EventSink {
 public:
  void on_events(std::span<Event> events) override {
    for (const Event& event : events) {
      Answer& answer = answers[event.id.value];
      for (const GeneratedToken& token : event.tokens) {
        answer.tokens.push_back(token.token);
        answer.logprob_bits.push_back(std::bit_cast<uint32_t>(token.logprob));
        for (const TokenLogprob& top : token.top) {
          answer.logprob_bits.push_back(std::bit_cast<uint32_t>(top.logprob));
        }
      }
      if (event.finish) {
        EXPECT_EQ(*event.finish, FinishReason::kLength);
        ++finished;
      }
    }
  }
  std::map<uint64_t, Answer> answers;
  size_t finished = 0;
};

/// 16 prompts of 1 to 150 tokens; every fourth shares a long beginning.
std::vector<Request> requests() {
  std::mt19937 random(3);
  std::vector<TokenId> shared(100);
  for (TokenId& token : shared) token = static_cast<TokenId>(random() % 4000);
  std::vector<Request> result;
  for (uint64_t id = 0; id < 16; ++id) {
    Request request{.id = {id}, .tokens_max = 24};
    if (id % 4 == 0) request.prompt = shared;
    const size_t extra = 1 + random() % 50;
    for (size_t i = 0; i < extra; ++i) {
      request.prompt.push_back(static_cast<TokenId>(random() % 4000));
    }
    request.sampling.temperature = id % 2 == 0 ? 0.0f : 0.9f;
    request.sampling.top_p = 0.95f;
    request.sampling.seed = 1000 + id;
    request.sampling.presence_penalty = 0.5f;
    request.sampling.logprobs_count = 5;
    result.push_back(std::move(request));
  }
  return result;
}

struct Setting {
  uint32_t sequences_max, step_tokens_max, page_tokens, pages_total;
  bool prefix_caching;
};

class Identity : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    auto files = model::ModelFiles::open("models/tiny-moe");
    ASSERT_TRUE(files.ok()) << files.error().what;
    device_ = cpu::CpuDevice::create({.threads_count = 2}).value();
    auto source = model::SafetensorsSource::open("models/tiny-moe");
    ASSERT_TRUE(source.ok()) << source.error().what;
    model_ = model::Qwen3::load(*device_, files->config, *source,
                                {.compute = GetParam(), .positions_max = kLengthMax})
                 .value();
  }

  /// Answers of `wanted`, all given to one engine at once.
  std::map<uint64_t, Answer> run(const Setting& s, std::vector<Request> wanted) {
    const Limits limits{.model_length_max = kLengthMax,
                        .sequences_max = s.sequences_max,
                        .step_tokens_max = s.step_tokens_max,
                        .page_tokens = s.page_tokens,
                        .pages_total = s.pages_total,
                        .vocabulary_size = 4096,
                        .tokenizer_size = 4096,
                        .prefix_caching = s.prefix_caching};
    auto runner =
        ModelRunner::create(*device_, *model_, {.limits = limits, .kv_dtype = GetParam()}).value();
    auto core = EngineCore::create({.limits = limits, .now_us = [] { return int64_t{1}; }}, *runner)
                    .value();
    Collector sink;
    const size_t count = wanted.size();
    for (Request& request : wanted) core->accept(std::move(request), sink, 0);
    for (int turns = 0; core->step(); ++turns) {
      if (turns > 100000) {
        ADD_FAILURE() << "the engine makes no progress";
        break;
      }
    }
    EXPECT_EQ(sink.finished, count);
    EXPECT_EQ(core->cache_stats().pages_used, 0u);
    preemptions_ = core->counters().preemptions;
    hit_tokens_ = core->cache_stats().hit_tokens;
    return sink.answers;
  }

  std::unique_ptr<cpu::CpuDevice> device_;
  std::unique_ptr<model::Qwen3> model_;
  uint64_t preemptions_ = 0;
  uint64_t hit_tokens_ = 0;
};

TEST_P(Identity, TheSameBitsAloneAndInACrowd) {
  std::map<uint64_t, Answer> alone;
  for (Request& request : requests()) {
    std::vector<Request> one;
    one.push_back(std::move(request));
    alone.merge(run({1, 512, 16, 40, false}, std::move(one)));
  }
  ASSERT_EQ(alone.size(), 16u);
  for (const auto& [id, answer] : alone) ASSERT_EQ(answer.tokens.size(), 24u);

  EXPECT_EQ(run({16, 512, 16, 400, false}, requests()), alone) << "one big batch";
  EXPECT_EQ(run({16, 19, 16, 400, false}, requests()), alone) << "chunks of odd length";
  EXPECT_EQ(run({4, 64, 7, 400, true}, requests()), alone) << "pages of 7, prefix hits";
  EXPECT_GT(hit_tokens_, 0u) << "the setting was meant to hit";
  EXPECT_EQ(run({16, 48, 16, 24, true}, requests()), alone) << "few pages, preemption";
  EXPECT_GT(preemptions_, 0u) << "the setting was meant to preempt";
}

INSTANTIATE_TEST_SUITE_P(Compute, Identity, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return dtype_name(info.param); });

}  // namespace
}  // namespace tandem::engine
