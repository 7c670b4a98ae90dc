// Goal: each rule of ports.h for pages that two engines touch, by examples small enough to follow.
// Method: one engine over the model of hashes; the test plays the other one and every network.
// long: the rules of one header
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "engine/engine_core.h"
#include "engine/testing/hash_outcome.h"
#include "engine/testing/hash_runner.h"
#include "engine/validate.h"

namespace tandem::engine {
namespace {

using ::testing::ElementsAre;
using testing::HashModel;
using testing::HashRunner;
using ::testing::HasSubstr;
using testing::kVocabulary;
using testing::Listener;
using testing::ticks;

constexpr Limits kLimits{.model_length_max = 32,
                         .sequences_max = 3,
                         .step_tokens_max = 4,
                         .page_tokens = 4,
                         .pages_total = 10,
                         .vocabulary_size = kVocabulary,
                         .tokenizer_size = kVocabulary,
                         .leases_max = 3,
                         .quarantine_pages_max = 2};
const std::vector<TokenId> kPrompt{5, 6, 7, 8, 9, 10, 11, 12, 13, 14};  // three pages

/// Notes what the engine asks of the other side.
class Notes final : public KvSource, public StepObserver {
 public:
  struct Reserved {
    ImportId import;
    RequestId request;
    std::vector<TokenId> tokens;
    kv::TokenRange range;
    std::vector<PageId> pages;
  };
  struct Scheduled {
    uint64_t step;
    kv::TokenRange tokens;
    std::vector<PageId> pages;
  };

  void reserve(const KvReservation& r) override {
    reserved.push_back({r.import,
                        r.request,
                        {r.tokens.begin(), r.tokens.end()},
                        r.range,
                        {r.pages.begin(), r.pages.end()}});
  }
  void abandon(ImportId import) override { abandoned.push_back(import); }
  void on_admitted(RequestId, uint32_t cached_tokens, std::span<const PageId>) override {
    admitted_with.push_back(cached_tokens);
  }
  void on_scheduled(uint64_t step, std::span<const ScheduledTokens> parts) override {
    for (const ScheduledTokens& part : parts) {
      scheduled.push_back({step, part.tokens, {part.pages.begin(), part.pages.end()}});
    }
  }
  void on_step_ended(uint64_t step) override { ended.push_back(step); }
  void on_layer_progress(int, uint64_t, uint32_t) override {}

  std::vector<Reserved> reserved;
  std::vector<ImportId> abandoned;
  std::vector<uint32_t> admitted_with;
  std::vector<Scheduled> scheduled;
  std::vector<uint64_t> ended;
};

class Handoff : public ::testing::Test {
 protected:
  void start(const Limits& limits) {
    core_.reset();
    runner_.emplace(limits);
    core_ =
        EngineCore::create(
            {.limits = limits, .now_us = ticks, .source = &notes_, .observer = &notes_}, *runner_)
            .value();
  }
  void SetUp() override { start(kLimits); }
  void TearDown() override { EXPECT_THAT(runner_->findings, ElementsAre()); }

  void accept(uint64_t id, KvWay way, uint32_t tokens_max = 3,
              const std::vector<TokenId>& prompt = kPrompt) {
    core_->accept({.id = {id}, .prompt = prompt, .tokens_max = tokens_max, .kv_way = way},
                  listener_, 0);
  }
  void run() {
    while (core_->step()) continue;
  }
  /// What the other engine would write.
  void write(const Notes::Reserved& r) {
    uint64_t state = 0;
    for (uint32_t position = 0; position < r.range.end; ++position) {
      state = HashModel::after(state, r.tokens[position]);
      if (position < r.range.first) continue;
      const PageId page =
          r.pages[position / kLimits.page_tokens - r.range.first / kLimits.page_tokens];
      runner_->slots()[page.value * kLimits.page_tokens + position % kLimits.page_tokens] = state;
    }
  }
  uint32_t pages_quarantined() const { return core_->cache_stats().pages_quarantined; }
  FinishReason finish_of(uint64_t id) { return listener_.heard[id].finish.value(); }

  Notes notes_;
  Listener listener_;
  std::optional<HashRunner> runner_;
  std::unique_ptr<EngineCore> core_;
};

TEST_F(Handoff, AnImportStartsAtTheLastTokenOfItsPrompt) {
  accept(0, KvWay::kImport);
  EXPECT_FALSE(core_->step()) << "it waits";
  EXPECT_EQ(core_->awaiting_count(), 1u);
  EXPECT_EQ(core_->counters().steps, 0u);
  ASSERT_EQ(notes_.reserved.size(), 1u);
  const Notes::Reserved& r = notes_.reserved[0];
  EXPECT_EQ(r.request, RequestId{0});
  EXPECT_EQ(r.range, (kv::TokenRange{0, 9}));
  EXPECT_EQ(r.tokens, kPrompt);
  EXPECT_EQ(r.pages.size(), 3u);
  write(r);
  core_->arrived(r.import);
  core_->drained(r.import);
  run();
  EXPECT_EQ(finish_of(0), FinishReason::kLength);
  EXPECT_EQ(core_->counters().imported_tokens, 9u);
  EXPECT_EQ(core_->counters().prompt_tokens, 1u) << "only the last one is computed here";
  EXPECT_THAT(notes_.abandoned, ElementsAre());

  // The pages are known now. What is left of the same prompt is a page and a half.
  accept(1, KvWay::kImport);
  core_->step();
  ASSERT_EQ(notes_.reserved.size(), 2u);
  EXPECT_EQ(notes_.reserved[1].range, (kv::TokenRange{8, 9}));
  EXPECT_EQ(notes_.reserved[1].pages.size(), 1u);
  write(notes_.reserved[1]);
  core_->arrived(notes_.reserved[1].import);
  run();
  EXPECT_EQ(listener_.heard[1].tokens, listener_.heard[0].tokens);
}

TEST_F(Handoff, WhatNeedsNothingStaysHere) {
  accept(0, KvWay::kImport, 1, {3});
  run();
  EXPECT_EQ(finish_of(0), FinishReason::kLength);
  const std::vector<TokenId> two_pages_and_one(kPrompt.begin(), kPrompt.begin() + 9);
  accept(1, KvWay::kHere, 1, two_pages_and_one);
  run();
  accept(2, KvWay::kImport, 1, two_pages_and_one);
  run();
  EXPECT_EQ(finish_of(2), FinishReason::kLength) << "all but the last token was cached";
  EXPECT_TRUE(notes_.reserved.empty());
}

TEST_F(Handoff, FailureEndsRecomputesOrTriesAgain) {
  Limits limits = kLimits;
  limits.pages_total = 12;
  start(limits);
  for (uint64_t id = 0; id < 3; ++id) accept(id, KvWay::kImport);
  core_->step();
  ASSERT_EQ(notes_.reserved.size(), 3u);
  const auto fail = [&](size_t i, AfterFailure then) {
    core_->failed(notes_.reserved[i].import, make_error(Code::kUnavailable, "it died"), then);
  };
  fail(0, AfterFailure::kEnd);
  core_->step();
  EXPECT_EQ(finish_of(0), FinishReason::kError);
  EXPECT_EQ(pages_quarantined(), 3u);
  core_->drained(notes_.reserved[0].import);
  core_->step();
  EXPECT_EQ(pages_quarantined(), 0u);

  fail(1, AfterFailure::kRecompute);
  core_->step();
  core_->drained(notes_.reserved[1].import);
  run();
  EXPECT_EQ(finish_of(1), FinishReason::kLength);
  EXPECT_EQ(notes_.reserved.size(), 3u) << "it asked nobody";

  fail(2, AfterFailure::kRetry);
  core_->step();
  EXPECT_EQ(notes_.reserved.size(), 3u) << "three pages in quarantine are too many";
  core_->drained(notes_.reserved[2].import);
  core_->step();
  ASSERT_EQ(notes_.reserved.size(), 4u);
  const Notes::Reserved& again = notes_.reserved[3];
  EXPECT_NE(again.import, notes_.reserved[2].import);
  EXPECT_EQ(again.range.first, 8u) << "two pages were computed meanwhile";
  core_->arrived(notes_.reserved[2].import);  // late news of the first try
  EXPECT_FALSE(core_->step());
  EXPECT_EQ(core_->awaiting_count(), 1u) << "they say nothing about the second";
  write(again);
  core_->arrived(again.import);
  core_->drained(again.import);
  run();
  EXPECT_EQ(listener_.heard[2].tokens, listener_.heard[1].tokens);
  EXPECT_EQ(core_->cache_stats().pages_used, 0u);
}

// Field case A4.
TEST_F(Handoff, PagesOfACancelledImportRestUntilNothingCanLand) {
  accept(0, KvWay::kImport);
  core_->step();
  const Notes::Reserved cancelled = notes_.reserved[0];
  core_->cancel({0});
  core_->step();
  EXPECT_EQ(finish_of(0), FinishReason::kCancelled);
  EXPECT_THAT(notes_.abandoned, ElementsAre(cancelled.import));
  EXPECT_EQ(pages_quarantined(), 3u);

  // Three are more than two: nobody is admitted, whatever is free.
  accept(1, KvWay::kHere);
  EXPECT_FALSE(core_->step());
  EXPECT_EQ(core_->waiting_count(), 1u);
  core_->drained(cancelled.import);
  run();
  EXPECT_EQ(finish_of(1), FinishReason::kLength);
  EXPECT_EQ(core_->cache_stats().pages_used, 0u);
}

TEST_F(Handoff, AllNewsOfACancelledImportMayComeAtOnce) {
  accept(0, KvWay::kImport);
  core_->step();
  core_->cancel({0});
  const ImportId import = notes_.reserved[0].import;
  core_->failed(import, make_error(Code::kUnavailable, "it died"), AfterFailure::kRetry);
  core_->drained(import);
  core_->step();
  EXPECT_EQ(finish_of(0), FinishReason::kCancelled);
  EXPECT_EQ(core_->cache_stats().pages_used, 0u);
  EXPECT_TRUE(notes_.abandoned.empty()) << "nothing is left to stop";
}

// What has arrived may be written once more, until it is drained.
TEST_F(Handoff, PagesThatArrivedGoToNobodyElseBeforeTheyAreDrained) {
  Limits limits = kLimits;
  limits.prefix_caching = false;
  start(limits);
  accept(0, KvWay::kImport, 1);
  core_->step();
  const Notes::Reserved r = notes_.reserved[0];
  write(r);
  core_->arrived(r.import);
  run();
  EXPECT_EQ(finish_of(0), FinishReason::kLength);
  EXPECT_EQ(core_->cache_stats().pages_leased, 3u);
  const std::vector<TokenId> rest(27, 1);  // seven pages: all others
  accept(1, KvWay::kHere, 2, rest);
  core_->step();
  write(r);
  run();
  EXPECT_EQ(finish_of(1), FinishReason::kLength);
  core_->drained(r.import);
  core_->step();
  EXPECT_EQ(core_->cache_stats().pages_used, 0u);
}

TEST_F(Handoff, ArrivalAndCancellationMayCross) {
  for (const bool arrives_first : {true, false}) {
    SCOPED_TRACE(arrives_first);
    notes_ = {};
    accept(arrives_first, KvWay::kImport);
    core_->step();
    core_->cancel({uint64_t{arrives_first}});
    if (!arrives_first) core_->step();
    EXPECT_EQ(notes_.abandoned.size(), arrives_first ? 0u : 1u);
    core_->arrived(notes_.reserved[0].import);
    core_->step();
    EXPECT_EQ(finish_of(arrives_first), FinishReason::kCancelled);
    EXPECT_EQ(notes_.abandoned.size(), 1u);
    EXPECT_EQ(pages_quarantined(), 3u);
    core_->drained(notes_.reserved[0].import);
    core_->step();
    EXPECT_EQ(core_->cache_stats().pages_used, 0u);
  }
}

TEST_F(Handoff, APreemptedImportIsImportedAgain) {
  Limits limits = kLimits;
  limits.pages_total = 8;
  limits.prefix_caching = false;
  start(limits);
  accept(0, KvWay::kHere, 20);  // 10 tokens grow to 30: eight pages
  core_->step();
  accept(1, KvWay::kImport, 20);
  core_->step();
  ASSERT_EQ(notes_.reserved.size(), 1u);
  write(notes_.reserved[0]);
  core_->arrived(notes_.reserved[0].import);
  core_->drained(notes_.reserved[0].import);
  run();
  ASSERT_EQ(notes_.reserved.size(), 2u);
  EXPECT_GT(core_->counters().preemptions, 0u);
  const Notes::Reserved& again = notes_.reserved[1];
  EXPECT_GT(again.tokens.size(), kPrompt.size()) << "what it generated is part of its prompt now";
  EXPECT_EQ(again.range.end + 1, again.tokens.size());
  write(again);
  core_->arrived(again.import);
  core_->drained(again.import);
  run();
  EXPECT_EQ(listener_.heard[0].tokens, listener_.heard[1].tokens);
  EXPECT_EQ(listener_.heard[1].tokens.size(), 20u);
}

// Field case A24.
TEST_F(Handoff, AnExportComputesAllButTheLastTokenAndKeepsItsPages) {
  accept(0, KvWay::kExport);
  run();
  EXPECT_EQ(finish_of(0), FinishReason::kLength);
  EXPECT_TRUE(listener_.heard[0].tokens.empty());
  EXPECT_EQ(core_->counters().prompt_tokens, 9u);
  EXPECT_THAT(notes_.admitted_with, ElementsAre(0u));
  ASSERT_EQ(notes_.scheduled.size(), 3u);
  EXPECT_EQ(notes_.scheduled[0].tokens, (kv::TokenRange{0, 4}));
  EXPECT_EQ(notes_.scheduled[1].tokens, (kv::TokenRange{4, 8}));
  EXPECT_EQ(notes_.scheduled[2].tokens, (kv::TokenRange{8, 9}));
  EXPECT_EQ(notes_.scheduled[2].step, 3u);
  EXPECT_THAT(notes_.ended, ElementsAre(1, 2, 3));
  EXPECT_EQ(core_->cache_stats().pages_leased, 3u);

  // All that is free goes to others, and they may read but not take what is leased.
  std::vector<TokenId> other(28, 1);
  accept(1, KvWay::kHere, 1, other);
  run();
  EXPECT_EQ(core_->cache_stats().pages_leased, 3u);
  uint64_t state = 0;
  for (uint32_t position = 0; position < 9; ++position) {
    state = HashModel::after(state, kPrompt[position]);
    const PageId page = notes_.scheduled[2].pages[position / 4];
    EXPECT_EQ(runner_->slots()[page.value * 4 + position % 4], state) << position;
  }
  core_->delivered({0});
  core_->step();
  EXPECT_EQ(core_->cache_stats().pages_used, 0u);
}

TEST_F(Handoff, AStepForOthersThatFailsEndsToo) {
  accept(0, KvWay::kExport);
  runner_->fault = [] { return HashRunner::Fault::kStepFails; };
  run();
  EXPECT_EQ(finish_of(0), FinishReason::kError);
  EXPECT_THAT(notes_.ended, ElementsAre(1));
}

TEST_F(Handoff, AnExportOfWhatIsCachedTakesNoStep) {
  const std::vector<TokenId> two_pages_and_one(kPrompt.begin(), kPrompt.begin() + 9);
  accept(0, KvWay::kHere, 1);
  run();
  const uint64_t steps = core_->counters().steps;
  accept(1, KvWay::kExport, 1, two_pages_and_one);
  run();
  EXPECT_EQ(core_->counters().steps, steps);
  EXPECT_EQ(finish_of(1), FinishReason::kLength);
  EXPECT_THAT(notes_.admitted_with, ElementsAre(8u));
  EXPECT_EQ(core_->cache_stats().pages_leased, 2u);
  core_->delivered({1});
  core_->step();
  EXPECT_EQ(core_->cache_stats().pages_used, 0u);
}

TEST_F(Handoff, AnExportThatWaitedIsToldOnlyWhatIsStillCached) {
  Limits limits = kLimits;
  limits.leases_max = 2;
  start(limits);
  accept(0, KvWay::kHere, 1);
  run();
  // Two that take all pages, and one of what was cached when it was asked for.
  accept(1, KvWay::kExport, 1, std::vector<TokenId>(28, 1));
  accept(2, KvWay::kExport, 1, std::vector<TokenId>(10, 2));
  accept(3, KvWay::kExport);
  run();
  EXPECT_EQ(core_->waiting_count(), 1u);
  for (const uint64_t id : {1, 2}) core_->delivered({id});
  notes_.scheduled.clear();
  run();
  EXPECT_THAT(notes_.admitted_with, ElementsAre(0u, 0u, 0u));
  ASSERT_EQ(notes_.scheduled.size(), 3u);
  EXPECT_EQ(notes_.scheduled[0].tokens, (kv::TokenRange{0, 4}));
  core_->delivered({3});
  core_->step();
}

TEST_F(Handoff, NoMoreIsLentThanMayBe) {
  Limits limits = kLimits;
  limits.leases_max = 1;
  start(limits);
  accept(0, KvWay::kExport);
  accept(1, KvWay::kExport);
  run();
  EXPECT_EQ(core_->waiting_count(), 1u) << "the first one's lease is the only one";
  core_->delivered({0});
  run();
  EXPECT_EQ(finish_of(1), FinishReason::kLength);
  core_->delivered({1});
  core_->step();
}

TEST_F(Handoff, EndingTellsTheSource) {
  accept(0, KvWay::kImport);
  core_->step();
  core_->fail_all(make_error(Code::kUnavailable, "over"));
  EXPECT_EQ(finish_of(0), FinishReason::kError);
  EXPECT_EQ(notes_.abandoned.size(), 1u);
  core_->drained(notes_.abandoned[0]);
  core_->step();
  EXPECT_EQ(core_->cache_stats().pages_used, 0u);
}

TEST(HandoffRequest, IsRefusedWhereItCannotBe) {
  Request request{.prompt = {1}, .kv_way = KvWay::kImport};
  EXPECT_TRUE(validate(request, kLimits).ok());
  Limits alone = kLimits;
  alone.leases_max = 0;
  EXPECT_THAT(validate(request, alone).error().what, HasSubstr("no hand-off"));
  request.kv_way = KvWay::kExport;
  EXPECT_THAT(validate(request, kLimits).error().what, HasSubstr("one token"));
  request.prompt = {1, 2};
  EXPECT_TRUE(validate(request, kLimits).ok());
}

}  // namespace
}  // namespace tandem::engine
