#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include "engine/batch.h"
#include "engine/model_runner.h"
#include "engine/testing/tiny_moe.h"

namespace tandem::engine::testing {

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
          answer.logprob_bits.push_back(static_cast<uint32_t>(top.token));
          answer.logprob_bits.push_back(std::bit_cast<uint32_t>(top.logprob));
        }
      }
      if (event.finish) ++finished;
    }
  }
  std::map<uint64_t, Answer> answers;
  size_t finished = 0;
};

/// Which row of logits: seed, choice, position of the token that is drawn from it.
using RowKey = std::tuple<uint64_t, uint32_t, uint32_t>;
using Rows = std::map<RowKey, std::vector<float>>;

/// Passes steps on to the model, then keeps the rows, or compares them with those of `alone`.
class RowWatcher final : public StepRunner {
 public:
  /// `runner` runs `model`'s steps. Rows of seeds from `seeds_end` on are not compared.
  RowWatcher(StepRunner& runner, const ModelRunner& model, const Rows* alone, uint64_t seeds_end)
      : runner_(runner), model_(model), alone_(alone), seeds_end_(seeds_end) {}

  Result<void> run(uint64_t step, std::span<const BatchItem> items,
                   std::span<ops::SampledRow> sampled) override {
    TANDEM_TRY(runner_.run(step, items, sampled));
    batch_max = std::max(batch_max, items.size());
    int64_t row = 0;
    for (const BatchItem& item : items) {
      if (item.sample == nullptr) continue;
      const auto logits = model_.last_logits().row(row++);
      const ops::SampleRow& s = *item.sample;
      const RowKey key{s.seed, s.choice_index, s.position};
      if (alone_ == nullptr) {
        rows[key].assign(logits, logits + kTinyMoeVocabulary);
      } else if (s.seed < seeds_end_) {
        compare(key, logits);
      }
    }
    return {};
  }

  Rows rows;
  size_t rows_compared = 0;
  size_t batch_max = 0;

 private:
  void compare(const RowKey& key, const float* logits) {
    ++rows_compared;
    const auto found = alone_->find(key);
    ASSERT_NE(found, alone_->end()) << "a position that was not drawn alone";
    const std::vector<float>& right = found->second;
    if (std::memcmp(logits, right.data(), right.size() * sizeof(float)) == 0) return;
    size_t at = 0;
    while (std::bit_cast<uint32_t>(logits[at]) == std::bit_cast<uint32_t>(right[at])) ++at;
    ADD_FAILURE() << "seed " << std::get<0>(key) << " choice " << std::get<1>(key) << " position "
                  << std::get<2>(key) << ": logit " << at << " is " << logits[at] << ", alone "
                  << right[at];
  }

  StepRunner& runner_;
  const ModelRunner& model_;
  const Rows* alone_;
  const uint64_t seeds_end_;
};

}  // namespace tandem::engine::testing
