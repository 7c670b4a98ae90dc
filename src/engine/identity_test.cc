// Goal: a request's tokens, logprobs and logits are the same bits alone and in a crowd of 32,
// whatever the chunk and page size, with and without prefix hits, after preemption and beside
// requests that are cancelled (contracts: numerics). So are seeded draws, penalties and choices.
// Method: random requests over the trained tiny-moe, each first alone. Then all of them, shuffled,
// at random turns, among random neighbours of which some are cancelled, under settings that force
// chunks, hits and preemptions. A runner between engine and model holds every row of logits that
// was sampled from against the row of the same request and position alone, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "engine/engine_core.h"
#include "engine/model_runner.h"
#include "engine/scorer.h"
#include "engine/testing/row_watcher.h"
#include "engine/testing/tiny_moe.h"

namespace tandem::engine {
namespace {

using testing::Answer;
using testing::Collector;
using testing::RowKey;
using testing::Rows;
using testing::RowWatcher;

// Sanitizers make a step some ten times slower: one type will do there, and fewer requests.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr DType kTypes[] = {DType::kBF16};
constexpr size_t kRequests = 6;
constexpr uint32_t kTokensMax = 8;
#else
constexpr DType kTypes[] = {DType::kF32, DType::kBF16};
constexpr size_t kRequests = 20;
constexpr uint32_t kTokensMax = 16;
#endif
constexpr uint32_t kBatch = 32;
constexpr size_t kNeighbours = 28;
constexpr uint32_t kLengthMax = 400;  // prompts cross the first cut of attention, at 256
constexpr uint64_t kNeighbourSeeds = 1'000'000;

/// Draws requests. Half of them begin alike, so that prefixes can be shared.
class Source {
 public:
  explicit Source(uint32_t seed) : random_(seed) {
    std::mt19937 fixed(3);  // the same for every source: neighbours share it too
    shared_.resize(100);
    for (TokenId& token : shared_) token = static_cast<TokenId>(fixed() % 4000);
  }

  uint32_t number(uint32_t end) { return static_cast<uint32_t>(random_() % end); }

  Request request(uint64_t id, uint64_t seed, uint32_t choice, size_t prompt_tokens) {
    Request request{.id = {id}, .choice_index = choice, .tokens_max = kTokensMax};
    if (number(2) == 0) request.prompt = shared_;
    for (size_t i = 0; i < prompt_tokens; ++i) {
      request.prompt.push_back(static_cast<TokenId>(number(4000)));
    }
    SamplingParams& s = request.sampling;
    s.temperature = number(3) == 0 ? 0.0f : 0.3f + 0.1f * static_cast<float>(number(10));
    s.top_k = number(2) == 0 ? 0 : static_cast<int32_t>(1 + number(60));
    s.top_p = number(2) == 0 ? 1.0f : 0.9f;
    s.min_p = number(3) == 0 ? 0.02f : 0.0f;
    s.presence_penalty = number(2) == 0 ? 0.0f : 0.7f;
    s.frequency_penalty = number(2) == 0 ? 0.0f : 0.3f;
    s.repetition_penalty = number(2) == 0 ? 1.0f : 1.2f;
    s.seed = seed;
    s.logprobs_count = static_cast<int32_t>(number(7)) - 1;
    if (number(3) == 0) s.logit_bias.push_back({.token = 11, .bias = 2.0f});
    return request;
  }

 private:
  std::mt19937 random_;
  std::vector<TokenId> shared_;
};

/// The requests in question: lengths from 1 to 384, in threes that differ by their choice only.
std::vector<Request> requests() {
  constexpr size_t kLengths[] = {1, 40, 280, 7, 90, 16, 64};
  std::vector<Request> result;
  for (uint64_t id = 0; id < kRequests; ++id) {
    Source source(static_cast<uint32_t>(100 + id / 3));
    result.push_back(source.request(id, 1000 + id / 3, id % 3, kLengths[id / 3 % 7]));
  }
  return result;
}

struct Setting {
  const char* name;
  uint32_t sequences_max, step_tokens_max, page_tokens, pages_total;
  bool prefix_caching;
};

class Identity : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    auto tiny = testing::load_tiny_moe(GetParam(), kLengthMax);
    ASSERT_TRUE(tiny.ok()) << tiny.error().what;
    tiny_ = std::move(*tiny);
    const Setting one{"alone", 1, 512, 16, 25, false};
    start(one, nullptr);
    for (Request& request : requests()) {
      core_->accept(std::move(request), sink_, 0);
      run_to_end();
    }
    alone_ = std::move(sink_.answers);
    alone_rows_ = std::move(watcher_->rows);
    ASSERT_EQ(alone_.size(), kRequests);
    ASSERT_EQ(alone_rows_.size(), kRequests * kTokensMax);
    for (const auto& [id, answer] : alone_) ASSERT_EQ(answer.tokens.size(), kTokensMax);
  }

  void start(const Setting& s, const Rows* alone) {
    const Limits limits{.model_length_max = kLengthMax,
                        .sequences_max = s.sequences_max,
                        .step_tokens_max = s.step_tokens_max,
                        .page_tokens = s.page_tokens,
                        .pages_total = s.pages_total,
                        .vocabulary_size = testing::kTinyMoeVocabulary,
                        .tokenizer_size = testing::kTinyMoeVocabulary,
                        .prefix_caching = s.prefix_caching};
    core_.reset();
    sink_ = {};
    runner_ =
        ModelRunner::create(*tiny_.device, *tiny_.model, {.limits = limits, .kv_dtype = GetParam()})
            .value();
    watcher_ = std::make_unique<RowWatcher>(*runner_, *runner_, alone, kNeighbourSeeds);
    core_ = EngineCore::create({.limits = limits, .now_us = [] { return int64_t{1}; }}, *watcher_)
                .value();
  }

  void run_to_end() {
    for (int turns = 0; core_->step(); ++turns) ASSERT_LT(turns, 100'000) << "no progress";
  }

  /// All requests among random neighbours, in random order at random turns; some neighbours are
  /// cancelled. Everything must be as it was alone.
  void expect_same_in_crowd(const Setting& setting, uint32_t seed) {
    SCOPED_TRACE(::testing::Message() << setting.name << ", seed " << seed);
    start(setting, &alone_rows_);
    Source source(seed);
    std::vector<Request> arriving = requests();
    for (size_t i = 0; i < kNeighbours; ++i) {
      arriving.push_back(
          source.request(kRequests + i, kNeighbourSeeds + i, 0, 1 + source.number(50)));
    }
    for (size_t i = arriving.size(); i > 1; --i) {
      std::swap(arriving[i - 1], arriving[source.number(static_cast<uint32_t>(i))]);
    }
    const size_t count = arriving.size();
    for (size_t next = 0; next < count;) {
      for (uint32_t burst = source.number(24); burst > 0 && next < count; --burst) {
        core_->accept(std::move(arriving[next++]), sink_, 0);
      }
      if (source.number(2) == 0) core_->cancel({kRequests + source.number(kNeighbours)});
      core_->step();
    }
    run_to_end();
    EXPECT_EQ(sink_.finished, count);
    EXPECT_EQ(core_->cache_stats().pages_used, 0u);
    EXPECT_GE(watcher_->rows_compared, kRequests * kTokensMax);
    std::erase_if(sink_.answers, [](const auto& entry) { return entry.first >= kRequests; });
    EXPECT_EQ(sink_.answers, alone_);
  }

  void expect_same_in_chunks_of_one() {
    start({"chunks of 1", 1, 1, 16, 25, false}, &alone_rows_);
    std::map<uint64_t, Answer> some;
    for (Request& request : requests()) {
      if (request.prompt.size() > 150 || request.choice_index > 0) continue;
      some[request.id.value] = alone_[request.id.value];
      core_->accept(std::move(request), sink_, 0);
    }
    ASSERT_GE(some.size(), 2u);
    run_to_end();
    EXPECT_EQ(sink_.answers, some);
  }

  /// `tandem logits` and `tandem eval` promise the bits of the serving path.
  void expect_same_in_scorer() {
    auto scorer = Scorer::create(*tiny_.device, *tiny_.model,
                                 {.model_length_max = kLengthMax,
                                  .chunk_tokens = 45,
                                  .page_tokens = 5,
                                  .kv_dtype = GetParam()})
                      .value();
    for (const Request& request : requests()) {
      if (request.choice_index > 0) continue;
      std::vector<TokenId> tokens = request.prompt;
      const std::vector<TokenId>& generated = alone_[request.id.value].tokens;
      tokens.insert(tokens.end(), generated.begin(), generated.end());
      size_t compared = 0;
      const auto compare = [&](size_t position, std::span<const float> logits) {
        const RowKey key{request.sampling.seed, 0, static_cast<uint32_t>(position + 1)};
        const auto row = alone_rows_.find(key);
        if (row == alone_rows_.end()) return;  // in the prompt, or after the last token
        ++compared;
        EXPECT_EQ(std::memcmp(row->second.data(), logits.data(), logits.size_bytes()), 0)
            << "request " << request.id.value << " position " << position;
      };
      ASSERT_TRUE(scorer->score(tokens, compare).ok());
      EXPECT_EQ(compared, kTokensMax);
    }
  }

  testing::TinyMoe tiny_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<RowWatcher> watcher_;
  std::unique_ptr<EngineCore> core_;
  Collector sink_;
  std::map<uint64_t, Answer> alone_;
  Rows alone_rows_;
};

TEST_P(Identity, InACrowdWhateverTheChunkAndThePage) {
  expect_same_in_crowd({"large chunks, pages of 64", kBatch, 1024, 64, 224, false}, 1);
  EXPECT_EQ(watcher_->batch_max, kBatch) << "the crowd was meant to fill the batch";
  expect_same_in_crowd({"odd chunks, pages of 7", kBatch, 75, 7, 2000, false}, 2);
  expect_same_in_crowd({"small chunks, pages of 16, hits", kBatch, 37, 16, 800, true}, 3);
  EXPECT_GT(core_->counters().prefix_hit_tokens, 0u) << "the setting was meant to hit";

  expect_same_in_crowd({"few pages of 1, hits, preemption", kBatch, 128, 1, 410, true}, 4);
  EXPECT_GT(core_->counters().preemptions, 0u) << "the setting was meant to preempt";
  EXPECT_GT(core_->counters().prefix_hit_tokens, 0u);
  expect_same_in_crowd({"few pages of 2, no hits, preemption", kBatch, 93, 2, 202, false}, 5);
  EXPECT_GT(core_->counters().preemptions, 0u) << "the setting was meant to preempt";
}

TEST_P(Identity, OneTokenAtATimeAndInTheScorer) {
  expect_same_in_chunks_of_one();
  expect_same_in_scorer();
}

INSTANTIATE_TEST_SUITE_P(Compute, Identity, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return dtype_name(info.param); });

}  // namespace
}  // namespace tandem::engine
