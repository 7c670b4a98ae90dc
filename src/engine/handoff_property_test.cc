// Goal: K and V that another engine computes give the tokens that the request would have got alone,
// whatever fails, is cancelled, preempted or late, and however few pages either side has: every
// request ends once, no page is used while another engine may touch it, and all come back
// (contracts: hand-off; field cases A1, A2, A4, A6, A13, A19, A24, A27).
// Method: random histories of two engines over the model of hashes, which notices every wrong or
// overwritten slot, with testing/courier.h between them.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine_core.h"
#include "engine/testing/courier.h"
#include "engine/testing/hash_outcome.h"
#include "engine/testing/hash_runner.h"
#include "engine/testing/random_draws.h"
#include "engine/validate.h"

namespace tandem::engine {
namespace {

using testing::Courier;
using testing::expect_right;
using testing::HashRunner;
using testing::Heard;
using testing::kVocabulary;
using testing::Listener;
using testing::RandomDraws;
using testing::ticks;

class Handoffs {
 public:
  explicit Handoffs(uint32_t seed)
      : draws_(seed),
        length_max_(2 + draws_.number(60)),
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
    if (draws_.chance(2)) {
      faulty_ = true;
      courier.failure_one_in = 20;
      source_runner_.fault = [this] {
        if (draws_.chance(30)) return HashRunner::Fault::kStepFails;
        return draws_.chance(30) ? HashRunner::Fault::kItemsFail : HashRunner::Fault::kNone;
      };
    }
  }

  void run(size_t requests_count) {
    const uint32_t arrivals = 1 + draws_.number(5);
    for (int turns = 0; accepted_.size() < requests_count || listener_.finished < requests_count ||
                        !courier.is_idle();
         ++turns) {
      ASSERT_LT(turns, 100'000) << "no progress";
      if (accepted_.size() < requests_count && draws_.chance(arrivals)) {
        for (uint32_t i = 0; i < arrivals && accepted_.size() < requests_count; ++i) accept();
      }
      if (draws_.chance(8)) cancel_any();
      if (!draws_.chance(3)) source_->step();
      courier.turn();
      if (!draws_.chance(3)) target_->step();
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

  Courier courier{[this](uint32_t end) { return draws_.number(end); }};

 private:
  Limits draw_limits() {
    Limits limits = draws_.limits(length_max_);
    limits.leases_max = 1 + draws_.number(8);
    limits.quarantine_pages_max = draws_.number(limits.pages_total);
    return limits;
  }

  void accept() {
    Request request{.id = {accepted_.size()}, .prompt = draws_.prompt(length_max_)};
    request.sampling.seed = draws_.number(UINT32_MAX);
    request.tokens_max = 1 + draws_.number(30);
    if (!draws_.chance(4)) request.kv_way = KvWay::kImport;
    ASSERT_TRUE(validate(request, target_limits_).ok());
    accepted_.push_back(request);
    cancelled_.push_back(false);
    // Sources may generate, too: exports and growing sequences share pages and steps.
    const bool at_source = request.kv_way == KvWay::kHere && draws_.chance(2);
    (at_source ? *source_ : *target_).accept(std::move(request), listener_, 0);
  }

  /// Of the client's requests, wherever they are: any, also one that has ended or never was.
  void cancel_any() {
    const uint32_t id = draws_.number(static_cast<uint32_t>(accepted_.size()) + 1);
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
      expect_right(heard, accepted_[id], target_limits_, cancelled_[id], faulty_);
    }
  }

  RandomDraws draws_;
  const uint32_t length_max_;
  const Limits source_limits_;
  const Limits target_limits_;
  HashRunner source_runner_;
  HashRunner target_runner_;
  Listener listener_;
  std::unique_ptr<EngineCore> source_;
  std::unique_ptr<EngineCore> target_;
  std::vector<Request> accepted_;  // by id
  std::vector<bool> cancelled_;    // by id
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
