#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/limits.h"
#include "engine/request.h"
#include "engine/testing/hash_runner.h"

namespace tandem::engine::testing {

inline constexpr uint32_t kVocabulary = 40;

/// A clock that never shows the same time twice, so that times tell an order.
inline int64_t ticks() {
  static int64_t now = 0;
  return ++now;
}

struct Outcome {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kStop;
};

/// What the contract says about a request that is neither cancelled nor struck by a failure.
inline Outcome expected(const Request& request, const Limits& limits) {
  Outcome outcome;
  uint64_t state = 0;
  for (TokenId token : request.prompt) state = HashModel::after(state, token);
  for (;;) {
    const size_t known = request.prompt.size() + outcome.tokens.size();
    ops::SampleRow row{.seed = request.sampling.seed,
                       .choice_index = request.choice_index,
                       .position = static_cast<uint32_t>(known),
                       .vocabulary_limit = static_cast<int32_t>(kVocabulary)};
    if (outcome.tokens.size() < request.tokens_min) row.masked_tokens = request.stop_tokens;
    outcome.tokens.push_back(HashModel::next(state, row));
    state = HashModel::after(state, outcome.tokens.back());
    const auto& stops = request.stop_tokens;
    if (std::ranges::find(stops, outcome.tokens.back()) != stops.end()) return outcome;
    if (outcome.tokens.size() == request.tokens_max || known + 1 == limits.model_length_max) {
      outcome.finish = FinishReason::kLength;
      return outcome;
    }
  }
}

/// What the engine told about one request.
struct Heard {
  std::vector<TokenId> tokens;
  std::optional<FinishReason> finish;
  int64_t scheduled_us = 0;
  uint64_t steps_as_oldest = 0;
};

/// Ended in one of the ways that it may end in, with all tokens that it should get, or the first of
/// them where a cancel or a failure cut it short.
inline void expect_right(const Heard& heard, const Request& request, const Limits& limits,
                         bool may_be_cancelled, bool may_fail) {
  const uint64_t id = request.id.value;
  const Outcome right = expected(request, limits);
  if (*heard.finish == FinishReason::kStop || *heard.finish == FinishReason::kLength) {
    EXPECT_EQ(heard.tokens, right.tokens) << "request " << id;
    EXPECT_EQ(*heard.finish, right.finish) << "request " << id;
    return;
  }
  EXPECT_TRUE(*heard.finish == FinishReason::kCancelled ? may_be_cancelled : may_fail)
      << "request " << id;
  ASSERT_LE(heard.tokens.size(), right.tokens.size()) << "request " << id;
  EXPECT_TRUE(std::ranges::equal(heard.tokens, std::span(right.tokens).first(heard.tokens.size())))
      << "request " << id;
}

class Listener final : public EventSink {
 public:
  void on_events(std::span<Event> events) override {
    for (const Event& event : events) {
      Heard& one = heard[event.id.value];
      EXPECT_FALSE(one.finish) << "request " << event.id.value << " spoke after its end";
      EXPECT_TRUE(event.finish || !event.tokens.empty()) << "an event says something";
      for (const GeneratedToken& token : event.tokens) one.tokens.push_back(token.token);
      generated += event.tokens.size();
      one.finish = event.finish;
      one.scheduled_us = event.timing.queue_us;  // submitted at 0
      if (event.finish) {
        EXPECT_EQ(event.error.has_value(), *event.finish == FinishReason::kError);
        ++finished;
      }
    }
  }
  std::map<uint64_t, Heard> heard;
  size_t finished = 0;
  uint64_t generated = 0;
};

}  // namespace tandem::engine::testing
