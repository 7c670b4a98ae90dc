// Goal: writes arrive when a wire of that speed has carried them, one behind the other; a speed of
// 0 holds nothing back; writes to a closed peer end unsent; a sleeper is woken for the next one.
// Method: a rail that delivers at once, under a clock that the test sets.
#include "bench/throttled_rail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "transfer/testing/instant_rail.h"

namespace tandem::bench {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using transfer::Post;
using transfer::RailOutcome;

class Ends final : public transfer::RailEvents {
 public:
  void post_ended(uint64_t token, RailOutcome outcome, const Error*) override {
    ends.emplace_back(token, outcome);
  }
  void immediate_arrived(uint32_t) override {}
  void message_arrived(std::span<const std::byte>) override {}
  void region_closed(transfer::RailRegionId) override {}
  void peer_closed(transfer::RailPeerId) override {}
  void rail_failed(const Error&) override {}

  std::vector<std::pair<uint64_t, RailOutcome>> ends;
};

/// Can be waited for: its descriptor never becomes readable.
class SleepyRail final : public transfer::InstantRail {
 public:
  explicit SleepyRail(int descriptor) : descriptor_(descriptor) {}
  int wait_descriptor() const override { return descriptor_; }
  bool may_sleep() override { return true; }

 private:
  int descriptor_;
};

class ThrottledRailTest : public testing::Test {
 protected:
  ThrottledRailTest() { EXPECT_EQ(::pipe(silence_), 0); }
  ~ThrottledRailTest() override {
    ::close(silence_[0]);
    ::close(silence_[1]);
  }
  std::unique_ptr<ThrottledRail> make_rail() {
    auto rail = ThrottledRail::create(std::make_unique<SleepyRail>(silence_[0]),
                                      {.bytes_per_second = [this] { return speed_; },
                                       .on_sent = [this](uint64_t bytes) { sent_ += bytes; },
                                       .clock = [this] { return now_; }});
    EXPECT_TRUE(rail.ok());
    return std::move(rail).value();
  }
  static transfer::RailWrite write(uint64_t token, uint64_t bytes, uint32_t peer = 0) {
    return {.peer = {peer}, .bytes = bytes, .token = token};
  }
  auto poll(ThrottledRail& rail) {
    ends_.ends.clear();
    rail.poll(ends_, 16);
    return ends_.ends;
  }

  double speed_ = 1000;  // a byte takes a millisecond
  transfer::TimePoint now_{std::chrono::hours(1)};
  uint64_t sent_ = 0;
  Ends ends_;
  int silence_[2] = {-1, -1};
};

TEST_F(ThrottledRailTest, WritesArriveOneBehindTheOther) {
  const auto rail = make_rail();
  EXPECT_EQ(rail->post_write(write(1, 10)), Post::kAccepted);
  EXPECT_EQ(rail->post_write(write(2, 20)), Post::kAccepted);
  now_ += milliseconds(9);
  EXPECT_THAT(poll(*rail), IsEmpty());
  now_ += milliseconds(1);
  EXPECT_THAT(poll(*rail), ElementsAre(Pair(1, RailOutcome::kDelivered)));
  EXPECT_EQ(sent_, 10);
  now_ += milliseconds(19);
  EXPECT_THAT(poll(*rail), IsEmpty());
  now_ += milliseconds(1);
  EXPECT_THAT(poll(*rail), ElementsAre(Pair(2, RailOutcome::kDelivered)));
  EXPECT_EQ(sent_, 30);
}

TEST_F(ThrottledRailTest, AnIdleWireSavesNoTime) {
  const auto rail = make_rail();
  now_ += std::chrono::seconds(5);
  EXPECT_EQ(rail->post_write(write(1, 10)), Post::kAccepted);
  now_ += milliseconds(9);
  EXPECT_THAT(poll(*rail), IsEmpty());
}

TEST_F(ThrottledRailTest, SpeedZeroHoldsNothingBack) {
  speed_ = 0;
  const auto rail = make_rail();
  EXPECT_EQ(rail->post_write(write(1, 1 << 20)), Post::kAccepted);
  EXPECT_THAT(poll(*rail), ElementsAre(Pair(1, RailOutcome::kDelivered)));
}

TEST_F(ThrottledRailTest, AFullWireRefuses) {
  const auto rail = make_rail();
  for (uint64_t i = 0; i < rail->limits().posts_max; ++i) {
    ASSERT_EQ(rail->post_write(write(i, 1)), Post::kAccepted);
  }
  EXPECT_EQ(rail->post_write(write(0, 1)), Post::kFull);
}

TEST_F(ThrottledRailTest, WritesToAClosedPeerEndUnsent) {
  const auto rail = make_rail();
  EXPECT_EQ(rail->post_write(write(1, 10, 0)), Post::kAccepted);
  EXPECT_EQ(rail->post_write(write(2, 10, 1)), Post::kAccepted);
  rail->close_peer({0});
  EXPECT_THAT(poll(*rail), ElementsAre(Pair(1, RailOutcome::kNotSent)));
  now_ += milliseconds(20);
  EXPECT_THAT(poll(*rail), ElementsAre(Pair(2, RailOutcome::kDelivered)));
  EXPECT_EQ(sent_, 10);
}

TEST_F(ThrottledRailTest, ASleeperIsWokenForTheNextArrival) {
  const auto rail = make_rail();
  EXPECT_EQ(rail->post_write(write(1, 5)), Post::kAccepted);
  ASSERT_TRUE(rail->may_sleep());
  pollfd wait{.fd = rail->wait_descriptor(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&wait, 1, 60'000), 1);
  now_ += milliseconds(5);
  EXPECT_FALSE(rail->may_sleep());
  EXPECT_THAT(poll(*rail), ElementsAre(Pair(1, RailOutcome::kDelivered)));
}

}  // namespace
}  // namespace tandem::bench
