// Goal: the protocol of flags and epochs loses no wake-up and overwrites nothing before it is read,
// in any order of steps. Method: a model of signal, wait and of the collectives' buffers is run in
// every interleaving (testing/explorer.h), for 2 and 3 ranks and 3 epochs; each step of the
// protocol is then left out in turn, and the explorer must find the defect. The model has no time
// limit on sleep, so what it shows does not rest on the 250 ms of the heap. It is sequentially
// consistent, as the four operations of symmetric_heap.cc are; the payload is ordered by release
// and acquire, which ThreadSanitizer watches in the other tests.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "comm/testing/explorer.h"

namespace tandem::comm::explorer {
namespace {

using Kind = Step::Kind;

/// What may be left out or done wrongly.
enum class Defect {
  kNone,
  kNoWake,           ///< signal does not look for sleepers
  kNotCounted,       ///< a waiter sleeps without counting itself as a sleeper
  kSleepBlindly,     ///< a sleep that does not compare the flag again
  kOneBuffer,        ///< a one-shot with one buffer for all epochs
  kNoSecondWait,     ///< a two-shot that does not wait for the sums
  kWaitForOne,       ///< a rank waits for its successor only
  kSignalBeforePut,  ///< the flag is raised too early
  kWakeBeforeRaise,  ///< signal looks for sleepers before it raises the flag
};

struct Model {
  int ranks = 2;
  Defect defect = Defect::kNone;
};

class Builder {
 public:
  Builder(Model model, uint8_t rank) : model_(model), rank_(rank) {}

  void send(uint8_t flag, uint8_t buffer, uint8_t epoch) {
    for_each_peer([&](uint8_t peer) {
      const auto add = [&](Kind kind) { program.push_back({kind, peer, flag, buffer, epoch}); };
      const auto wake = [&] {
        add(Kind::kCountSleepers);
        add(Kind::kWake);
      };
      if (model_.defect != Defect::kSignalBeforePut) add(Kind::kPut);
      if (model_.defect == Defect::kWakeBeforeRaise) wake();
      add(Kind::kRaise);
      if (model_.defect != Defect::kNoWake && model_.defect != Defect::kWakeBeforeRaise) wake();
      if (model_.defect == Defect::kSignalBeforePut) add(Kind::kPut);
    });
  }

  void wait_for_all(uint8_t flag, uint8_t epoch) {
    bool is_first = true;
    for_each_peer([&](uint8_t peer) {
      if (is_first || model_.defect != Defect::kWaitForOne) wait(flag, epoch, peer);
      is_first = false;
    });
  }

  void read_all(uint8_t buffer, uint8_t epoch) {
    for_each_peer([&](uint8_t peer) { program.push_back({Kind::kRead, peer, 0, buffer, epoch}); });
  }

  /// all_gather, and the one-shot all-reduce: two buffers (0 and 1) in turn.
  void one_shot(uint8_t epoch, int shots_before) {
    const auto buffer =
        static_cast<uint8_t>(model_.defect == Defect::kOneBuffer ? 0 : shots_before % 2);
    send(0, buffer, epoch);
    wait_for_all(0, epoch);
    read_all(buffer, epoch);
  }

  /// The two-shot all-reduce, and dispatch and combine: one buffer per phase (2 and 3).
  void two_shot(uint8_t epoch) {
    send(0, 2, epoch);
    wait_for_all(0, epoch);
    read_all(2, epoch);
    send(1, 3, epoch);
    if (model_.defect != Defect::kNoSecondWait) wait_for_all(1, epoch);
    read_all(3, epoch);
  }

  /// The two-shot all-reduce in two pieces: the second one's slices leave before the first one's
  /// are waited for, and the first one's sums are read last (buffers 2 and 3, 4 and 5).
  void two_pieces(uint8_t epoch) {
    const auto next = static_cast<uint8_t>(epoch + 1);
    send(0, 2, epoch);
    send(0, 4, next);
    wait_for_all(0, epoch);
    read_all(2, epoch);
    send(1, 3, epoch);
    wait_for_all(0, next);
    read_all(4, next);
    send(1, 5, next);
    wait_for_all(1, epoch);
    read_all(3, epoch);
    // The one wait that says that everyone is done with this call.
    if (model_.defect != Defect::kNoSecondWait) wait_for_all(1, next);
    read_all(5, next);
  }

  Program program;

 private:
  template <typename Body>
  void for_each_peer(Body body) {
    for (int step = 1; step < model_.ranks; ++step) {
      body(static_cast<uint8_t>((rank_ + step) % model_.ranks));
    }
  }

  void wait(uint8_t flag, uint8_t epoch, uint8_t peer) {
    const auto add = [&](Kind kind) { program.push_back({kind, peer, flag, 0, epoch}); };
    add(Kind::kCheck);
    if (model_.defect != Defect::kNotCounted) add(Kind::kAddSleeper);
    add(Kind::kLook);
    add(model_.defect == Defect::kSleepBlindly ? Kind::kSleepBlindly : Kind::kSleep);
    add(Kind::kAsleep);
    add(Kind::kRemoveSleeper);
  }

  Model model_;
  uint8_t rank_;
};

/// Up to three calls, each 1 (one-shot), 2 (two-shot), 3 (two-shot in two pieces) or 0 (none).
using Calls = std::array<int, 3>;

Outcome explore(Model model, Calls calls) {
  std::vector<Program> programs;
  for (uint8_t rank = 0; rank < model.ranks; ++rank) {
    Builder builder(model, rank);
    int shots = 0;
    uint8_t epoch = 0;
    for (const int call : calls) {
      if (call == 1) builder.one_shot(++epoch, shots++);
      if (call == 2) builder.two_shot(++epoch);
      if (call != 3) continue;
      builder.two_pieces(++epoch);
      ++epoch;
    }
    programs.push_back(std::move(builder.program));
  }
  return Explorer(std::move(programs)).run();
}

TEST(Protocol, EveryOrderOfStepsEndsWell) {
  size_t states_count = 0;
  for (int ranks : {2, 3}) {
    for (const Calls calls : {Calls{1, 1, 1}, Calls{1, 1, 2}, Calls{1, 2, 1}, Calls{2, 1, 1},
                              Calls{1, 2, 2}, Calls{2, 1, 2}, Calls{2, 2, 1}, Calls{2, 2, 2}}) {
      const Outcome outcome = explore({.ranks = ranks}, calls);
      EXPECT_EQ(outcome.defect, "");
      states_count += outcome.states_count;
    }
  }
  for (const Calls calls : {Calls{3, 3, 1}, Calls{1, 3, 2}, Calls{2, 3, 3}}) {
    const Outcome outcome = explore({.ranks = 2}, calls);
    EXPECT_EQ(outcome.defect, "");
    states_count += outcome.states_count;
  }
  RecordProperty("states_count", static_cast<int>(states_count));
}

TEST(Protocol, PiecesBetweenThreeRanks) {
  EXPECT_EQ(explore({.ranks = 3}, {3, 3, 0}).defect, "");
}

TEST(Protocol, EveryMissingStepIsFound) {
  const auto defect = [](int ranks, Defect what, Calls calls) {
    return explore({.ranks = ranks, .defect = what}, calls).defect;
  };
  const Calls ones = {1, 1, 1};
  const Calls twos = {2, 2, 2};
  constexpr const char* kLost = "all sleep: a wake-up was lost";
  EXPECT_EQ(defect(2, Defect::kNoWake, ones), kLost);
  EXPECT_EQ(defect(2, Defect::kNotCounted, ones), kLost);
  EXPECT_EQ(defect(2, Defect::kSleepBlindly, ones), kLost);
  EXPECT_EQ(defect(2, Defect::kWakeBeforeRaise, ones), kLost);
  EXPECT_EQ(defect(2, Defect::kOneBuffer, ones), "overwritten before it was read");
  EXPECT_EQ(defect(2, Defect::kSignalBeforePut, ones), "read before it was written");
  EXPECT_EQ(defect(2, Defect::kNoSecondWait, twos), "read before it was written");
  EXPECT_EQ(defect(2, Defect::kNoSecondWait, {3, 3, 0}), "read before it was written");
  EXPECT_NE(defect(3, Defect::kWaitForOne, ones), "");
}

}  // namespace
}  // namespace tandem::comm::explorer
