// Goal: every row of the prefiller's table in docs/handoff.md. Method: a state is reached by
// events, one more event comes, and what the machine does to its ports is compared as text.
#include "cluster/handoff/prefiller.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace tandem::cluster::handoff {
namespace {

constexpr LinkId kLink{77};
constexpr Key kKey{4, 9};
constexpr LinkedKey kHandoff{kLink, kKey};
constexpr uint32_t kTokens = 10;  // positions 2 to 8 are sent

/// Writes down what it is told, and answers as it was told to.
class Log final : public PrefillerPorts {
 public:
  std::string take() { return std::exchange(text_, ""); }

  void send(const Message& message) override {
    static constexpr const char* kNames[] = {"Start",   "Cancel",    "Accepted", "Failed",
                                             "Drained", "Heartbeat", "Ask"};
    if (std::holds_alternative<Heartbeat>(message.body)) {
      ++heartbeats;
      return;
    }
    std::string what = kNames[message.body.index()];
    if (const auto* drained = std::get_if<Drained>(&message.body)) {
      if (drained->cause) what += ": " + drained->cause->text;
    }
    if (const auto* failed = std::get_if<Failed>(&message.body)) what += ": " + failed->cause.text;
    add(what);
  }
  Result<void> begin(LinkedKey, const Start&) override {
    add("begin");
    if (refusal) return *refusal;
    return {};
  }
  Submitted submit(LinkedKey, const Slices& slices) override {
    add("submit " + std::to_string(slices.rank) + "/" + std::to_string(slices.layer) + " " +
        std::to_string(slices.tokens_from) + "-" + std::to_string(slices.tokens_end));
    return next;
  }
  void stop(LinkedKey) override { add("stop"); }
  void release(LinkedKey) override { add("release"); }

  std::optional<Error> refusal;
  Submitted next{.writes = 2};
  int heartbeats = 0;

 private:
  void add(const std::string& what) { text_ += (text_.empty() ? "" : ", ") + what; }
  std::string text_;
};

class PrefillerTest : public testing::Test {
 protected:
  void open(Prefiller::Options options = {}) {
    machine_ = std::make_unique<Prefiller>(options, log_);
    machine_->on_link_up(kLink, 0);
    now_us_ = 1000;
    log_.next = {.writes = 2};
  }
  void message(decltype(Message::body) body, Key key = kKey) {
    machine_->on_message({kLink, key, std::move(body)}, now_us_);
  }
  static Start start() {
    return {.tokens = std::vector<TokenId>(kTokens, 1),
            .first_position = 2,
            .pages = {PageId{3}},
            .writes = {4},
            .time_left_us = 30'000'000};
  }
  void begin() {
    message(start());
    log_.take();
  }
  /// Two writes are outstanding.
  void begin_and_send() {
    open();
    begin();
    computed(0, 5);
    log_.take();
  }
  void reach_failed() {
    begin_and_send();
    machine_->on_compute_failed(kHandoff, error(), now_us_);
    log_.take();
  }
  void computed(uint32_t layer, uint32_t tokens_end, uint32_t rank = 0) {
    machine_->on_computed(kHandoff, rank, layer, tokens_end, now_us_);
  }
  static Error error() { return make_error(Code::kInternal, "a step failed"); }
  void wait(int64_t us) {
    for (const int64_t end_us = now_us_ + us; now_us_ < end_us;) {
      now_us_ += std::min<int64_t>(100'000, end_us - now_us_);
      message(Heartbeat{}, Key{});
      machine_->on_timer(now_us_);
    }
  }

  Log log_;
  std::unique_ptr<Prefiller> machine_;
  int64_t now_us_ = 1000;
};

TEST_F(PrefillerTest, TakesASecondStartForTheFirst) {
  open();
  message(start());
  EXPECT_EQ(log_.take(), "begin, Accepted");
  message(start());
  EXPECT_EQ(log_.take(), "Accepted");
}

TEST_F(PrefillerTest, RefusesWhatItsEngineRefusesForGood) {
  open();
  log_.refusal = make_error(Code::kInvalidArgument, "page sizes differ: 16 here, 24 there");
  message(start());
  EXPECT_EQ(log_.take(), "begin, Drained: page sizes differ: 16 here, 24 there");
  message(start());
  EXPECT_EQ(log_.take(), "Drained");
  EXPECT_EQ(machine_->handoffs_count(), 0u);
}

TEST_F(PrefillerTest, AStartBehindItsCancelOrALaterEpochNeverBegins) {
  open();
  message(Cancel{});
  EXPECT_EQ(log_.take(), "Drained");
  message(start());
  message(start(), Key{kKey.slot, kKey.epoch - 1});
  EXPECT_EQ(log_.take(), "Drained, Drained");
  message(start(), Key{kKey.slot, kKey.epoch + 1});
  message(start(), Key{static_cast<uint16_t>(kKey.slot + 1), 1});
  EXPECT_EQ(log_.take(), "begin, Accepted, begin, Accepted");
  EXPECT_EQ(machine_->counters().stale_starts, 2u);
}

TEST_F(PrefillerTest, SendsEverySliceOnceAndLayersThatWereSkipped) {
  open({.source_ranks = 2, .layers = 3});
  begin();
  computed(1, 5);  // nothing was said about layer 0
  EXPECT_EQ(log_.take(), "submit 0/0 2-5, submit 0/1 2-5");
  computed(0, 5);
  computed(1, 4);
  computed(0, 2, 1);
  EXPECT_EQ(log_.take(), "");
  computed(2, 100);  // the engine may also compute the last token, which is not sent
  EXPECT_EQ(log_.take(), "submit 0/0 5-9, submit 0/1 5-9, submit 0/2 2-9");
  computed(2, 9, 1);
  EXPECT_EQ(log_.take(), "submit 1/0 2-9, submit 1/1 2-9, submit 1/2 2-9");
  machine_->on_delivered(kHandoff, 15);
  EXPECT_EQ(log_.take(), "");
  machine_->on_delivered(kHandoff, 1);
  EXPECT_EQ(log_.take(), "release, Drained");
  EXPECT_EQ(machine_->counters().completed, 1u);
}

TEST_F(PrefillerTest, SendsWhatIsCachedInAllLayersAtOnce) {
  open({.source_ranks = 2, .layers = 2});
  message(start());
  EXPECT_EQ(log_.take(), "begin, Accepted");
  for (const uint32_t rank : {0, 1}) machine_->on_computed(kHandoff, rank, 1, 6, 0);
  EXPECT_EQ(log_.take(), "submit 0/0 2-6, submit 0/1 2-6, submit 1/0 2-6, submit 1/1 2-6");
  open();
  message(start());
  log_.next.writes = 0;
  machine_->on_computed(kHandoff, 0, 0, 9, 0);  // everything that is wanted
  EXPECT_EQ(log_.take(), "begin, Accepted, submit 0/0 2-9, release, Drained");
}

TEST_F(PrefillerTest, DrainedComesAfterTheLastWriteAndNeverBefore) {
  open();
  begin();
  computed(0, 9);
  log_.take();
  machine_->on_delivered(kHandoff, 1);
  wait(60'000'000 / 4);
  EXPECT_EQ(log_.take(), "");
  machine_->on_delivered(kHandoff, 1);
  EXPECT_EQ(log_.take(), "release, Drained");
  message(Cancel{});  // the decoder did not hear it
  EXPECT_EQ(log_.take(), "Drained");
}

TEST_F(PrefillerTest, ACancelIsConfirmedWhenDrained) {
  begin_and_send();
  message(Cancel{});
  EXPECT_EQ(log_.take(), "stop");
  message(Cancel{});
  message(start());
  computed(0, 9);
  machine_->on_compute_failed(kHandoff, error(), now_us_);
  machine_->on_delivered(kHandoff, 1);
  EXPECT_EQ(log_.take(), "");
  machine_->on_write_failed(kHandoff, 1, error(), now_us_);
  EXPECT_EQ(log_.take(), "release, Drained");
  open();
  begin();
  message(Cancel{});
  EXPECT_EQ(log_.take(), "stop, release, Drained") << "nothing was under way";
}

TEST_F(PrefillerTest, AFailureIsToldAtOnceAndUntilItIsAnswered) {
  begin_and_send();
  machine_->on_compute_failed(kHandoff, error(), now_us_);
  EXPECT_EQ(log_.take(), "stop, Failed: a step failed");
  wait(200'000);
  EXPECT_EQ(log_.take(), "Failed: a step failed");
  message(start());
  EXPECT_EQ(log_.take(), "Failed: a step failed");
  machine_->on_compute_failed(kHandoff, error(), now_us_);
  computed(0, 9);
  EXPECT_EQ(log_.take(), "");
  machine_->on_delivered(kHandoff, 2);
  EXPECT_EQ(log_.take(), "release");
  wait(1);
  EXPECT_EQ(log_.take(), "Drained: a step failed");
  wait(200'000);
  EXPECT_EQ(log_.take(), "Drained: a step failed");
  message(Cancel{});
  EXPECT_EQ(log_.take(), "Drained");
  EXPECT_EQ(machine_->handoffs_count(), 0u);
}

TEST_F(PrefillerTest, WritesThatFailOrAreNotSubmittedFailIt) {
  begin_and_send();
  machine_->on_write_failed(kHandoff, 1, make_error(Code::kUnavailable, "rail 1 is gone"), now_us_);
  EXPECT_EQ(log_.take(), "stop, Failed: rail 1 is gone");
  open();
  begin();
  log_.next = {.writes = 1, .error = make_error(Code::kUnavailable, "a queue is closed")};
  computed(0, 9);
  EXPECT_EQ(log_.take(), "submit 0/0 2-9, stop, Failed: a queue is closed");
  open({.layers = 2});
  begin();
  log_.next = {.writes = 0, .error = make_error(Code::kUnavailable, "a queue is closed")};
  computed(1, 9);
  EXPECT_EQ(log_.take(), "submit 0/0 2-9, stop, release, Drained: a queue is closed");
}

TEST_F(PrefillerTest, ACancelOfWhatFailedIsConfirmedWhenDrained) {
  reach_failed();
  message(Cancel{});
  EXPECT_EQ(log_.take(), "");
  machine_->on_delivered(kHandoff, 2);
  EXPECT_EQ(log_.take(), "release, Drained");
}

TEST_F(PrefillerTest, TheDecodersTimeEndsIt) {
  begin_and_send();
  wait(29'900'000);
  EXPECT_EQ(log_.take(), "");
  wait(200'000);
  EXPECT_EQ(log_.take(), "stop, Failed: the decoder's time is over");
  EXPECT_EQ(machine_->counters().expired, 1u);
}

TEST_F(PrefillerTest, ASilentOrLostDecoderIsServedNoMore) {
  for (const bool is_lost : {false, true}) {
    for (const bool has_failed : {false, true}) {
      has_failed ? reach_failed() : begin_and_send();
      if (is_lost) {
        machine_->on_link_lost(kLink);
      } else {
        now_us_ += 2'000'000;
        machine_->on_timer(now_us_);
      }
      EXPECT_EQ(log_.take(), has_failed ? "" : "stop");
      computed(0, 9);
      EXPECT_EQ(log_.take(), "");
      machine_->on_delivered(kHandoff, 2);
      EXPECT_EQ(log_.take(), "release, Drained");
      EXPECT_EQ(machine_->handoffs_count(), 0u);
    }
  }
}

TEST_F(PrefillerTest, ASilentDecoderThatReturnsIsServedAgain) {
  begin_and_send();
  now_us_ += 3'000'000;
  machine_->on_timer(now_us_);
  log_.take();
  message(start(), Key{kKey.slot, kKey.epoch + 1});
  EXPECT_EQ(log_.take(), "begin, Accepted");
  now_us_ += 2'000'000;
  machine_->on_timer(now_us_);
  EXPECT_EQ(log_.take(), "stop, release, Drained");
}

TEST_F(PrefillerTest, OnALinkThatIsNotKnownOnlyAQuestionIsAnswered) {
  begin_and_send();
  machine_->on_link_lost(kLink);
  log_.take();
  message(Cancel{});
  EXPECT_EQ(log_.take(), "") << "it still drains";
  machine_->on_delivered(kHandoff, 2);
  log_.take();
  message(Cancel{});
  EXPECT_EQ(log_.take(), "Drained");
  message(start(), Key{1, 1});
  message(Accepted{}, Key{1, 1});
  EXPECT_EQ(log_.take(), "");
  EXPECT_EQ(machine_->counters().unknown_links, 4u);
}

TEST_F(PrefillerTest, AQuestionIsAnsweredAndStopsNothing) {
  open();
  message(Ask{});  // overtook its Start, which must still count
  EXPECT_EQ(log_.take(), "");
  begin();
  message(Ask{});
  EXPECT_EQ(log_.take(), "Accepted");
  computed(0, 9);
  machine_->on_delivered(kHandoff, 2);
  log_.take();
  message(Ask{});
  EXPECT_EQ(log_.take(), "Drained");
  reach_failed();
  message(Ask{});
  EXPECT_EQ(log_.take(), "Failed: a step failed");
  message(Cancel{});
  message(Ask{});
  EXPECT_EQ(log_.take(), "") << "it still drains";
  machine_->on_link_lost(kLink);
  machine_->on_delivered(kHandoff, 2);
  log_.take();
  message(Ask{});
  EXPECT_EQ(log_.take(), "Drained");
}

TEST_F(PrefillerTest, SendsHeartbeatsAndIgnoresWhatIsNotItsToGet) {
  open();
  wait(1'000'000);
  EXPECT_GE(log_.heartbeats, 3);
  EXPECT_LE(log_.heartbeats, 5);
  message(Accepted{});
  message(Failed{});
  message(Drained{});
  EXPECT_EQ(log_.take(), "");
}

}  // namespace
}  // namespace tandem::cluster::handoff
