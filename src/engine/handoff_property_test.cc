// Goal: K and V that another engine computes give the tokens that the request would have got alone,
// whatever fails, is cancelled, preempted or late, and however few pages either side has: every
// request ends once, no page is used while another engine may touch it, and all come back
// (contracts: hand-off; field cases A1, A2, A4, A6, A13, A19, A24, A27).
// Method: random histories of two engines over the model of hashes, which notices every wrong or
// overwritten slot, with testing/courier.h between them.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/engine_core.h"
#include "engine/testing/courier.h"
#include "engine/testing/hash_outcome.h"
#include "engine/testing/hash_runner.h"
#include "engine/validate.h"

namespace tandem::engine {
namespace {

using testing::Courier;
using testing::expected;
using testing::HashRunner;
using testing::Heard;
using testing::kVocabulary;
using testing::Listener;
using testing::Outcome;
using testing::ticks;

class Handoffs {
 public:
  explicit Handoffs(uint32_t seed)
      : random_(seed),
        length_max_(2 + number(60)),
        source_limits_(draw_limits()),
        target_limits_(draw_limits()),
        source_runner_(source_limits_),
        target_runner_(target_limits_) {
    source_ = EngineCore::create({.limits = source_limits_, .now_us = ticks, .observer = &courier},
                                 source_runner_)
                  .value();
    target_ = EngineCore::create({.limits = target_limits_, .now_us = ticks, .source = &courier},
                                 target_runner_)
                  .value();
    courier.connect(Courier::end_of(*source_, source_runner_, source_limits_),
                    Courier::end_of(*target_, target_runner_, target_limits_));
    if (chance(2)) {
      faulty_ = true;
      courier.failure_one_in = 20;
      source_runner_.fault = [this] {
        if (chance(30)) return HashRunner::Fault::kStepFails;
        return chance(30) ? HashRunner::Fault::kItemsFail : HashRunner::Fault::kNone;
      };
    }
    for (int i = 0; i < 3; ++i) families_.push_back(draw_tokens(length_max_));
  }

  void run(size_t requests_count) {
    const uint32_t arrivals = 1 + number(5);
    for (int turns = 0; accepted_.size() < requests_count || listener_.finished < requests_count ||
                        !courier.is_idle();
         ++turns) {
      ASSERT_LT(turns, 100'000) << "no progress";
      if (accepted_.size() < requests_count && chance(arrivals)) {
        for (uint32_t i = 0; i < arrivals && accepted_.size() < requests_count; ++i) accept();
      }
      if (chance(8)) cancel_any();
      if (!chance(3)) source_->step();
      courier.turn();
      if (!chance(3)) target_->step();
      watch();
      ASSERT_TRUE(source_runner_.findings.empty()) << "source: " << source_runner_.findings.front();
      ASSERT_TRUE(target_runner_.findings.empty()) << "target: " << target_runner_.findings.front();
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
    check_end();
  }

  const EngineCore& source() const { return *source_; }
  const EngineCore& target() const { return *target_; }
  uint32_t quarantined_max() const { return quarantined_max_; }
  uint64_t refused_by_quarantine() const { return refused_by_quarantine_; }

  Courier courier{[this](uint32_t end) { return number(end); }};

 private:
  uint32_t number(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
  bool chance(uint32_t one_in) { return number(one_in) == 0; }

  std::vector<TokenId> draw_tokens(size_t count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = static_cast<TokenId>(number(kVocabulary));
    return tokens;
  }

  Limits draw_limits() {
    Limits limits{.model_length_max = length_max_, .sequences_max = 1 + number(8)};
    limits.step_tokens_max = limits.sequences_max + number(chance(2) ? 4 : 60);
    limits.page_tokens = 1 + number(9);
    const uint32_t least = (length_max_ + limits.page_tokens - 1) / limits.page_tokens;
    limits.pages_total = least + number(chance(2) ? 3 : 4 * least + 1);
    limits.vocabulary_size = limits.tokenizer_size = kVocabulary;
    limits.prefix_caching = !chance(3);
    limits.leases_max = 1 + number(8);
    limits.quarantine_pages_max = number(limits.pages_total);
    return limits;
  }

  void accept() {
    Request request{.id = {accepted_.size()}};
    const uint32_t length = 1 + number(length_max_ - 1);
    const uint32_t shared = chance(2) ? number(length + 1) : 0;
    const auto& family = families_[number(3)];
    request.prompt.assign(family.begin(), family.begin() + shared);
    for (TokenId token : draw_tokens(length - shared)) request.prompt.push_back(token);
    request.sampling.seed = random_();
    request.tokens_max = 1 + number(30);
    if (!chance(4)) request.kv_way = KvWay::kImport;
    ASSERT_TRUE(validate(request, target_limits_).ok());
    accepted_.push_back(request);
    cancelled_.push_back(false);
    // Sources may generate, too: exports and growing sequences share pages and steps.
    const bool at_source = request.kv_way == KvWay::kHere && chance(2);
    (at_source ? *source_ : *target_).accept(std::move(request), listener_, 0);
  }

  /// Of the client's requests, wherever they are: any, also one that has ended or never was.
  void cancel_any() {
    const uint32_t id = number(static_cast<uint32_t>(accepted_.size()) + 1);
    if (id < accepted_.size()) cancelled_[id] = true;
    source_->cancel({id});
    target_->cancel({id});
  }

  void watch() {
    for (const auto& [core, limits] :
         {std::pair{source_.get(), &source_limits_}, std::pair{target_.get(), &target_limits_}}) {
      ASSERT_LE(core->running_count() + core->awaiting_count(), limits->sequences_max);
    }
    const uint32_t quarantined = target_->cache_stats().pages_quarantined;
    quarantined_max_ = std::max(quarantined_max_, quarantined);
    if (quarantined > target_limits_.quarantine_pages_max && target_->waiting_count() > 0) {
      ++refused_by_quarantine_;
    }
  }

  void check_end() {
    for (EngineCore* core : {source_.get(), target_.get()}) {
      EXPECT_FALSE(core->step()) << "nothing is left to do";
      EXPECT_EQ(core->running_count() + core->waiting_count() + core->awaiting_count(), 0u);
      EXPECT_EQ(core->cache_stats().pages_used, 0u) << "pages leaked";
    }
    for (size_t id = 0; id < accepted_.size(); ++id) {
      const Heard& heard = listener_.heard[id];
      const Outcome right = expected(accepted_[id], target_limits_);
      const bool whole =
          *heard.finish == FinishReason::kStop || *heard.finish == FinishReason::kLength;
      if (whole) {
        EXPECT_EQ(heard.tokens, right.tokens) << "request " << id;
        EXPECT_EQ(*heard.finish, right.finish) << "request " << id;
      } else {
        EXPECT_TRUE(*heard.finish == FinishReason::kCancelled ? cancelled_[id] : faulty_);
        ASSERT_LE(heard.tokens.size(), right.tokens.size());
        EXPECT_TRUE(
            std::ranges::equal(heard.tokens, std::span(right.tokens).first(heard.tokens.size())))
            << "request " << id;
      }
    }
  }

  std::mt19937 random_;
  const uint32_t length_max_;
  const Limits source_limits_;
  const Limits target_limits_;
  HashRunner source_runner_;
  HashRunner target_runner_;
  Listener listener_;
  std::unique_ptr<EngineCore> source_;
  std::unique_ptr<EngineCore> target_;
  std::vector<std::vector<TokenId>> families_;  // beginnings that requests share
  std::vector<Request> accepted_;               // by id
  std::vector<bool> cancelled_;                 // by id
  bool faulty_ = false;
  uint32_t quarantined_max_ = 0;
  uint64_t refused_by_quarantine_ = 0;
};

TEST(HandoffProperty, RandomHistoriesKeepEveryPromise) {
  std::map<std::string, uint64_t> seen;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Handoffs handoffs(seed);
    handoffs.run(30);
    if (::testing::Test::HasFailure()) return;
    seen["imports"] += handoffs.courier.imports;
    seen["arrivals"] += handoffs.courier.arrivals;
    seen["failures"] += handoffs.courier.failures;
    seen["late writes"] += handoffs.courier.late_writes;
    seen["tokens cached at the source"] += handoffs.courier.cached_at_source;
    seen["preemptions at the source"] += handoffs.source().counters().preemptions;
    seen["preemptions at the target"] += handoffs.target().counters().preemptions;
    seen["imported tokens"] += handoffs.target().counters().imported_tokens;
    seen["target hit tokens"] += handoffs.target().counters().prefix_hit_tokens;
    seen["turns with pages in quarantine"] += handoffs.quarantined_max() > 0;
    seen["turns that the quarantine refused"] += handoffs.refused_by_quarantine();
  }
  // The histories were worth it.
  for (const auto& [what, times] : seen) EXPECT_GT(times, 100u) << what;
}

}  // namespace
}  // namespace tandem::engine
