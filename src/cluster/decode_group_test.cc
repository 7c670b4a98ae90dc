// Goal: what a decode group does before a hand-off begins: it waits for a stretch of sidecars that
// is long enough, in turn, until its time is over; and what of a writer that cannot be fenced.
// Method: a group in virtual time without a
// prefill worker; the test says what that one would.
#include "cluster/decode_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cluster/delivery/testing/plain_kv_rank.h"
#include "io/virtual_executor.h"
#include "transfer/executor_driver.h"
#include "transfer/loopback/loopback_fabric.h"

namespace tandem::cluster {
namespace {

using namespace std::chrono_literals;
using engine::ImportId;
using handoff::Key;
using handoff::Message;
using Numbers = std::vector<uint64_t>;

constexpr uint32_t kPageTokens = 4;
const kv::KvLayout kLayout{.element = kv::KvElement::kF32,
                           .layers = 1,
                           .kv_heads = 1,
                           .head_dim = 2,
                           .page_tokens = kPageTokens,
                           .pages_total = 7,
                           .rank_heads = kv::KvLayout::even_heads(1, 1)};

struct Fixture : ::testing::Test, engine::KvImport {
  explicit Fixture(bool can_fence = true) : fences(can_fence) {
    group = std::make_unique<DecodeGroup>(
        options(), *this, kLayout, ranks(), executor,
        [this](const Message& message) { on_message(message); }, [](handoff::LinkId) {});
    // Nobody writes, so its own address does for the writer's.
    const LinkSource source{.layout = kLayout, .ranks = {address}};
    const DecodeGroup::Peer peer{"p0", [this] { return has_ended; }};
    group->offer_link(peer, source, [this](Result<LinkOffer> offer) {
      ASSERT_TRUE(offer.ok()) << offer.error().what;
      link = offer->link;
      group->link_up(link);
    });
    executor.run_for(10ms);
    EXPECT_TRUE(group->has_link());
  }

  static DecodeGroup::Options options() {
    DecodeGroup::Options options;
    options.name = "d0";
    options.deadline_us = 1'500'000;  // before the link is silent
    return options;
  }
  std::vector<DataRank> ranks() {
    DataRankOptions options;
    options.engine.name = "rank";
    options.sidecar_records = kv::sidecar_records_max(kLayout, 0);
    options.clock = [this] { return executor.now(); };
    options.drive = [this](auto engine) -> Result<std::unique_ptr<transfer::Driver>> {
      return std::unique_ptr<transfer::Driver>(std::make_unique<transfer::ExecutorDriver>(
          std::move(engine), executor, transfer::ExecutorDriverOptions{}));
    };
    std::vector<std::unique_ptr<transfer::Rail>> rails;
    rails.push_back(fabric.make_rail({.name = "d0", .can_fence = fences}));
    std::vector<DataRank> ranks;
    ranks.push_back(open_data_rank(memory, std::move(rails), options).value());
    address = ranks.front().address;
    return ranks;
  }

  /// So many pages of it are to be brought.
  void reserve(uint64_t request, uint32_t pages) {
    Reservation reservation{.import = {request},
                            .request = {request},
                            .tokens = std::vector<TokenId>(pages * kPageTokens + 1),
                            .range = {0, pages * kPageTokens},
                            .pages = std::vector<PageId>(pages)};
    for (PageId& page : reservation.pages) page = PageId{next_page++ % kLayout.pages_total};
    group->on_reserved(std::move(reservation));
    executor.run_for(1ms);
  }
  void abandon(uint64_t import) {
    group->on_abandoned(ImportId{import});
    executor.run_for(1ms);
  }
  /// The prefill worker's last word.
  void drain(uint64_t nth_start) {
    group->on_message({link, starts.at(nth_start), handoff::Drained{}});
    executor.run_for(1ms);
  }

  void on_message(const Message& message) {
    if (!std::holds_alternative<handoff::Start>(message.body)) return;
    if (std::ranges::find(starts, message.key) == starts.end()) starts.push_back(message.key);
  }
  void arrived(ImportId import) override { ADD_FAILURE() << import.value; }
  void failed(ImportId import, Error error, engine::AfterFailure) override {
    failures.push_back(import.value);
    failure = std::move(error);
  }
  void drained(ImportId import) override { ended.push_back(import.value); }

  const bool fences;
  bool has_ended = false;  // the prefill worker
  io::VirtualExecutor executor;
  transfer::LoopbackFabric fabric{1, [this] { return executor.now(); }};
  testing::PlainKvRank memory{kLayout, 0};
  transfer::EngineAddress address;
  uint32_t next_page = 0;
  handoff::LinkId link;
  std::vector<Key> starts;  // of hand-offs, in order
  Numbers failures, ended;  // imports
  Error failure;
  std::unique_ptr<DecodeGroup> group;
};

/// Sidecars of 5 pages are free, in gaps of 3 and 2 with those of one page between them.
struct Gaps : Fixture {
  Gaps() {
    for (const auto& [request, pages] : {std::pair{1, 3}, {2, 1}, {3, 2}}) reserve(request, pages);
    EXPECT_EQ(starts.size(), 3u);
    for (const uint64_t request : {1, 3}) {
      abandon(request);
      drain(request - 1);
    }
    EXPECT_EQ(std::exchange(ended, {}), (Numbers{1, 3}));
    reserve(4, 4);
  }
};

TEST_F(Gaps, AHandoffWaitsForAStretchAndNobodyOvertakesIt) {
  reserve(5, 1);
  EXPECT_EQ(starts.size(), 3u);
  abandon(2);
  EXPECT_EQ(starts.size(), 3u) << "late writes may still be proved by what lies there";
  drain(1);
  EXPECT_EQ(starts.size(), 5u);
  EXPECT_TRUE(failures.empty());
}

TEST_F(Gaps, WhatIsAbandonedWaitsNoMore) {
  abandon(4);
  EXPECT_EQ(ended, Numbers{4});
  abandon(2);
  drain(1);
  EXPECT_EQ(starts.size(), 3u);
}

TEST_F(Gaps, WhatWaitsTooLongFails) {
  reserve(5, 1);
  // The one in the way is never confirmed, and the link is kept alive.
  abandon(2);
  for (int i = 0; i < 4; ++i) {
    executor.run_for(400ms);
    group->on_message({link, {}, handoff::Heartbeat{}});
  }
  EXPECT_EQ(failures, Numbers{4});
  EXPECT_EQ(failure.code, Code::kDeadlineExceeded) << failure.what;
  EXPECT_EQ(ended, Numbers{4});
  EXPECT_EQ(starts.size(), 4u) << "the one behind it had room all the time";
}

struct WithoutFence : Fixture {
  WithoutFence() : Fixture(false) {}
};

TEST_F(WithoutFence, PagesOfALostLinkRestUntilTheWritersProcessHasEnded) {
  reserve(1, 2);
  group->link_lost(link);
  executor.run_for(60s);
  EXPECT_EQ(failures, Numbers{1});
  EXPECT_EQ(ended, Numbers{}) << "it is stopped, perhaps, and may go on";
  has_ended = true;
  executor.run_for(100ms);
  EXPECT_EQ(ended, Numbers{1});
  EXPECT_EQ(group->quarantined_pages(), 0u);
}

TEST_F(WithoutFence, PagesOfADeadWriterAreFreeAtOnce) {
  reserve(1, 2);
  has_ended = true;
  group->link_lost(link);
  executor.run_for(1ms);
  EXPECT_EQ(failures, Numbers{1});
  EXPECT_EQ(ended, Numbers{1});
}

}  // namespace
}  // namespace tandem::cluster
