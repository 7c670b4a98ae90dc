// Goal: whatever arrives, is cancelled or fails, and however few pages there are, the loop keeps
// its promises: every request ends once, with the tokens that it would have got alone; limits hold;
// pages come back; first come, first served; nobody starves.
// Method: random limits and random histories over a model of hashes (testing/hash_runner.h) that
// notices every wrong page; what a request should get is computed here without an engine.
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "engine/engine_core.h"
#include "engine/testing/hash_outcome.h"
#include "engine/testing/hash_runner.h"
#include "engine/testing/random_draws.h"
#include "engine/validate.h"

namespace tandem::engine {
namespace {

using testing::expect_right;
using testing::HashRunner;
using testing::Heard;
using testing::kVocabulary;
using testing::Listener;
using testing::RandomDraws;
using testing::ticks;

class History {
 public:
  explicit History(uint32_t seed)
      : draws_(seed), limits_(draws_.limits(2 + draws_.number(60))), runner_(limits_) {
    core_ = EngineCore::create({.limits = limits_, .now_us = ticks}, runner_).value();
    if (draws_.chance(3)) {
      runner_.fault = [this] {
        if (draws_.chance(40)) return HashRunner::Fault::kStepFails;
        if (draws_.chance(40)) return HashRunner::Fault::kItemsFail;
        return draws_.chance(40) ? HashRunner::Fault::kRowIsNotFinite : HashRunner::Fault::kNone;
      };
      faulty_ = true;
    }
  }

  void run(size_t requests_count) {
    const uint32_t arrivals = 1 + draws_.number(5);  // the rarer, the more of them come at once
    while (accepted_.size() < requests_count || listener_.finished < requests_count) {
      if (accepted_.size() < requests_count && draws_.chance(arrivals)) {
        for (uint32_t i = 0; i < arrivals && accepted_.size() < requests_count; ++i) accept();
      }
      if (draws_.chance(6)) cancel_any();
      const auto oldest = oldest_alive();
      const uint64_t steps = core_->counters().steps;
      core_->step();
      if (oldest && core_->counters().steps > steps) note_step_of_oldest(*oldest);
      ASSERT_LE(core_->running_count(), limits_.sequences_max);
      ASSERT_TRUE(runner_.findings.empty()) << runner_.findings.front();
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
    EXPECT_FALSE(core_->step()) << "nothing is left to do";
    check_end();
  }

  uint64_t preemptions() const { return core_->counters().preemptions; }
  uint64_t steps() const { return core_->counters().steps; }
  uint64_t hit_tokens() const { return core_->counters().prefix_hit_tokens; }

 private:
  void accept() {
    Request request{.id = {accepted_.size()}, .prompt = draws_.prompt(limits_.model_length_max)};
    request.choice_index = draws_.number(3);
    request.sampling.seed = draws_.number(UINT32_MAX);
    request.tokens_max = 1 + draws_.number(30);
    request.tokens_min = draws_.number(request.tokens_max + 1);
    if (draws_.chance(2)) request.stop_tokens = draws_.tokens(1 + draws_.number(3));
    if (draws_.chance(4)) request.cache_salt = "another tenant";
    ASSERT_TRUE(validate(request, limits_).ok());
    accepted_.push_back(request);
    cancelled_.push_back(false);
    core_->accept(std::move(request), listener_, 0);
  }

  /// Any request, also one that has ended, or one that never was.
  void cancel_any() {
    const uint32_t id = draws_.number(static_cast<uint32_t>(accepted_.size()) + 1);
    if (id < accepted_.size()) cancelled_[id] = true;
    core_->cancel({id});
  }

  std::optional<size_t> oldest_alive() {
    for (; ended_ < accepted_.size(); ++ended_) {
      if (!listener_.heard[ended_].finish) return ended_;
    }
    return std::nullopt;
  }

  /// The oldest computes at least one token in each step and is never preempted.
  void note_step_of_oldest(size_t id) {
    const Request& request = accepted_[id];
    const uint64_t steps = ++listener_.heard[id].steps_as_oldest;
    EXPECT_LE(steps, request.prompt.size() + request.tokens_max) << "request " << id << " starves";
  }

  void check_end() {
    EXPECT_EQ(core_->running_count() + core_->waiting_count(), 0u);
    EXPECT_EQ(core_->cache_stats().pages_used, 0u) << "pages leaked";
    EXPECT_EQ(core_->counters().generated_tokens, listener_.generated);
    int64_t last_scheduled_us = 0;
    for (size_t id = 0; id < accepted_.size(); ++id) {
      const Heard& heard = listener_.heard[id];
      expect_right(heard, accepted_[id], limits_, cancelled_[id], faulty_);
      if (heard.tokens.empty()) continue;  // may have ended while it was waiting
      EXPECT_GT(heard.scheduled_us, last_scheduled_us) << "request " << id << " was overtaken";
      last_scheduled_us = heard.scheduled_us;
    }
  }

  RandomDraws draws_;
  const Limits limits_;
  HashRunner runner_;
  Listener listener_;
  std::unique_ptr<EngineCore> core_;
  std::vector<Request> accepted_;  // by id
  std::vector<bool> cancelled_;    // by id
  size_t ended_ = 0;               // all ids below have ended
  bool faulty_ = false;
};

TEST(EngineCoreProperty, RandomHistoriesKeepEveryPromise) {
  uint64_t preemptions = 0;
  uint64_t steps = 0;
  uint64_t hit_tokens = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    History history(seed);
    history.run(40);
    if (HasFailure()) return;
    preemptions += history.preemptions();
    steps += history.steps();
    hit_tokens += history.hit_tokens();
  }
  // The histories were worth it.
  EXPECT_GT(steps, 50'000u);
  EXPECT_GT(preemptions, 1'000u);
  EXPECT_GT(hit_tokens, 1'000u);
}

TEST(EngineCore, ARequestThatWaitsForPagesIsLookedUpOnce) {
  const Limits limits{.model_length_max = 16,
                      .sequences_max = 2,
                      .step_tokens_max = 16,
                      .page_tokens = 4,
                      .pages_total = 4,
                      .vocabulary_size = kVocabulary,
                      .tokenizer_size = kVocabulary};
  HashRunner runner(limits);
  Listener listener;
  auto core = EngineCore::create({.limits = limits, .now_us = ticks}, runner).value();
  const std::vector<TokenId> prompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (uint64_t id = 0; id < 2; ++id) {
    core->accept({.id = {id}, .prompt = prompt, .tokens_max = 7}, listener, 0);
  }
  for (int turn = 0; turn < 3; ++turn) core->step();
  ASSERT_EQ(core->waiting_count(), 1u) << "the second must wait for the first one's pages";
  while (core->step()) continue;
  EXPECT_EQ(listener.finished, 2u);
  EXPECT_EQ(core->counters().prefix_query_tokens, 2 * prompt.size());
  EXPECT_EQ(core->counters().prefix_hit_tokens, 8u) << "two pages, once";
}

TEST(EngineCore, FailingEverythingEndsWaitingAndRunning) {
  const Limits limits{.model_length_max = 16,
                      .sequences_max = 1,
                      .step_tokens_max = 4,
                      .page_tokens = 4,
                      .pages_total = 4,
                      .vocabulary_size = kVocabulary,
                      .tokenizer_size = kVocabulary};
  HashRunner runner(limits);
  Listener listener;
  auto core = EngineCore::create({.limits = limits, .now_us = ticks}, runner).value();
  for (uint64_t id = 0; id < 3; ++id) {
    core->accept({.id = {id}, .prompt = {1, 2, 3}, .tokens_max = 9}, listener, 0);
  }
  core->step();
  core->cancel({2});
  core->fail_all(make_error(Code::kUnavailable, "over"));
  EXPECT_EQ(listener.finished, 3u);
  EXPECT_EQ(*listener.heard[0].finish, FinishReason::kError);
  EXPECT_EQ(*listener.heard[1].finish, FinishReason::kError);
  EXPECT_EQ(*listener.heard[2].finish, FinishReason::kCancelled);
  EXPECT_EQ(core->cache_stats().pages_used, 0u);
  EXPECT_FALSE(core->step());
}

}  // namespace
}  // namespace tandem::engine
