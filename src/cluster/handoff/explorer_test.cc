// Goal: whatever the network and the fabric do, and whoever is stopped, killed or cancelled when,
// the two machines together keep the protocol's promises: no write lands in a page that its
// hand-off does not hold; every request ends once and within a bound of time; what is admitted is
// right, then and until its end; at rest nothing is held on either side.
// Method: random histories of one decode group and two prefill workers in virtual time, with fakes
// of network, fabric, pages and engines (testing/). A failure prints its seed, and
// --gtest_random_seed=N runs that one alone.
#include <gtest/gtest.h>

#include "cluster/handoff/testing/cluster.h"

namespace tandem::cluster::handoff {
namespace {

using testing::Cluster;
using testing::Dice;
using testing::Faults;
using testing::Shape;

constexpr uint64_t kSeeds = 2000;
constexpr int64_t kSecond = 1'000'000;

/// What a seed was good for, summed over all, to see that the histories reach what they should.
struct Reached {
  uint64_t admitted = 0;
  uint64_t failed = 0;
  uint64_t not_proved = 0;
  uint64_t cancelled = 0;
  uint64_t fences = 0;
  uint64_t stale_starts = 0;
};

class History {
 public:
  explicit History(uint64_t seed) : dice_(seed), cluster_(seed, draw_shape(), draw_options(), 2) {
    Faults& faults = cluster_.world.faults;
    faults.can_fence = can_fence_;
    if (dice_.permille(700)) {
      faults.lost_messages = draw(300);
      faults.repeated_messages = draw(200);
      faults.late_messages = draw(100);
    }
    if (dice_.permille(700)) {
      faults.failed_writes = draw(10);
      faults.unsubmitted_writes = draw(10);
      faults.late_writes = draw(60);
      faults.damaged_writes = draw(10);
      faults.uncounted_writes = draw(10);
      faults.recounted_writes = draw(20);
    }
    for (int i = 0; i < 3; ++i) plan(i);
  }

  void run() {
    const int64_t storm_us = dice_.between(1, 20) * kSecond;
    cluster_.world.run_until([&] { return false; }, storm_us);
    cluster_.calm();
    // Longest: a process that is stopped for a minute, then deadlines, silence and fences.
    const bool quiet =
        cluster_.world.run_until([&] { return cluster_.is_quiet(); }, storm_us + 150 * kSecond);
    auto& host = cluster_.decoder();
    EXPECT_TRUE(host.all_ended()) << "a request did not end";
    EXPECT_TRUE(host.holds_nothing()) << host.machine().handoffs_count() << " hand-offs and "
                                      << host.machine().quarantined_pages() << " pages are left";
    EXPECT_TRUE(quiet) << "a prefill worker still holds something";
    for (const std::string& finding : cluster_.world.findings) ADD_FAILURE() << finding;
  }

  void add_to(Reached& reached) {
    const auto& counters = cluster_.decoder().machine().counters();
    reached.admitted += counters.admitted;
    reached.failed += counters.failed;
    reached.not_proved += counters.not_proved;
    reached.cancelled += counters.cancelled;
    reached.fences += counters.fences;
    for (size_t i = 0; i < cluster_.prefillers_count(); ++i) {
      reached.stale_starts += cluster_.prefiller(i).machine().counters().stale_starts;
    }
  }

 private:
  uint32_t draw(uint32_t most) {
    return dice_.permille(500) ? 0 : static_cast<uint32_t>(dice_.number(most + 1));
  }
  Shape draw_shape() {
    Shape shape{.layers = 1 + static_cast<uint32_t>(dice_.number(3)),
                .source_ranks = 1 + static_cast<uint32_t>(dice_.number(3)),
                .page_tokens = 2 + static_cast<uint32_t>(dice_.number(4)),
                .pages = 10 + static_cast<uint32_t>(dice_.number(12))};
    shape.target_ranks = 1 + static_cast<uint32_t>(dice_.number(shape.source_ranks));
    return shape;
  }
  Decoder::Options draw_options() {
    can_fence_ = dice_.permille(600);
    Decoder::Options options;
    options.policy = static_cast<Policy>(dice_.number(3));
    options.slots.slots_count = 1 + static_cast<uint32_t>(dice_.number(4));
    options.slots.rest_us = kSecond / 10;
    if (dice_.permille(500)) options.slots.epoch_first = 0x10000 - 3;
    if (dice_.permille(300)) options.quarantined_pages_max = 8;
    return options;
  }

  /// One of the things that happen to a cluster, again and again.
  void plan(int kind) {
    const int64_t every_us = kind == 0 ? kSecond / 3 : kind == 1 ? kSecond : 6 * kSecond;
    cluster_.world.timeline.after(dice_.between(1, every_us), [this, kind] {
      if (cluster_.world.timeline.now_us() > 20 * kSecond) return;
      if (kind == 0) submit();
      if (kind == 1) disturb_a_request();
      if (kind == 2) disturb_a_process();
      plan(kind);
    });
  }
  void submit() {
    auto& host = cluster_.decoder();
    if (host.requests_count() >= 25) return;
    const uint32_t page_tokens = cluster_.world.shape.page_tokens;
    std::vector<TokenId> prompt(1 + dice_.number(5 * page_tokens));
    const bool is_common = dice_.permille(300);
    for (TokenId& token : prompt) token = is_common ? 7 : static_cast<TokenId>(dice_.number(50));
    const uint64_t hits =
        dice_.permille(300) ? dice_.number((prompt.size() - 1) / page_tokens + 1) : 0;
    host.submit(std::move(prompt), static_cast<uint32_t>(hits) * page_tokens);
  }
  void disturb_a_request() {
    auto& host = cluster_.decoder();
    if (host.requests_count() == 0) return;
    const RequestId id{1 + dice_.number(host.requests_count())};
    if (dice_.permille(600)) return host.cancel(id);
    host.preempt(id, static_cast<uint32_t>(dice_.number(3)));
  }
  void disturb_a_process() {
    const size_t index = dice_.number(cluster_.prefillers_count());
    const auto& process = cluster_.prefiller(index).process();
    if (!process->is_alive) return;
    const bool is_long = dice_.permille(300);
    switch (dice_.number(4)) {
      case 0:
        return cluster_.kill_prefiller(index, dice_.between(1, kSecond),
                                       dice_.between(kSecond, 5 * kSecond));
      case 1:
        return cluster_.stop(process, is_long ? 60 * kSecond : dice_.between(1, 5 * kSecond));
      case 2:
        if (dice_.permille(300)) cluster_.kill_decoder(dice_.between(1, 5 * kSecond));
        return;
      default:
        return cluster_.stop(cluster_.decoder().process(), dice_.between(1, 4 * kSecond));
    }
  }

  Dice dice_;
  bool can_fence_ = true;
  Cluster cluster_;
};

TEST(HandoffExplorer, RandomHistoriesKeepEveryPromise) {
  Reached reached;
  const auto only = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed));
  for (uint64_t seed = only == 0 ? 1 : only; seed <= (only == 0 ? kSeeds : only); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    History history(seed);
    history.run();
    history.add_to(reached);
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  if (only != 0) return;
  EXPECT_GT(reached.admitted, 4 * kSeeds);
  EXPECT_GT(reached.failed, kSeeds);
  EXPECT_GT(reached.not_proved, kSeeds / 20);
  EXPECT_GT(reached.cancelled, kSeeds / 20);
  EXPECT_GT(reached.fences, kSeeds / 4);
  EXPECT_GT(reached.stale_starts, kSeeds / 20);
}

}  // namespace
}  // namespace tandem::cluster::handoff
