// Goal: a group that sleeps by its doorbell wakes for every request, whenever it comes and on
// whichever rank, and all of it wakes, in any order of steps. Method: a model of ranks that keep
// step, sleep when nobody has work, and of producers that put a request and ring, run in every
// interleaving (testing/interleavings.h); then each step of the protocol is left out or done
// wrongly in turn, and the explorer must find ranks that sleep for ever. The model has no time
// limit on sleep. The step header's all-gather is one step here: protocol_test.cc explores it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "comm/testing/interleavings.h"

namespace tandem::comm::explorer {
namespace {

constexpr size_t kRanksMax = 3;
constexpr size_t kThreadsMax = kRanksMax + 2;

/// What may be left out or done wrongly.
enum class Defect {
  kNone,
  kNoLookAfterArm,  ///< a rank sleeps without looking into its inbox again
  kLookBeforeArm,   ///< it looks, then arms
  kRingBeforePut,   ///< a producer reads whether the bell is armed, then puts
  kRingOwnOnly,     ///< a ring wakes the producer's rank only
  kNoWake,          ///< a ring raises the bell and wakes nobody
  kSleepBlindly,    ///< a sleep that does not compare the bell again
};

struct Model {
  uint8_t ranks = 2;
  std::vector<uint8_t> producers;  ///< whose inbox each puts one request into
  Defect defect = Defect::kNone;
};

/// Where a thread is. A rank serves: announce, meet, and then again or to sleep.
enum Place : uint8_t {
  kAnnounce,   // rank: take the inbox, say how many
  kMeet,       // rank: everybody has said so: serve, end, or go to sleep
  kArm,        // rank
  kLook,       // rank: is there news after all?
  kPut,        // producer
  kReadArmed,  // ring, from here on
  kRaise,
  kCountSleepers,
  kWake,
  kCheck,  // wait, from here on
  kAddSleeper,
  kRemember,
  kFallAsleep,
  kAsleep,
  kRemoveSleeper,
  kEnd,
};

/// Plain bytes, so that states can be compared.
struct State {
  std::array<uint8_t, kThreadsMax> place{};
  std::array<uint8_t, kThreadsMax> sleep{};   // number of the sleep that a ring ends
  std::array<uint8_t, kThreadsMax> target{};  // of a ring
  std::array<uint8_t, kThreadsMax> seen{};
  std::array<uint8_t, kRanksMax> is_asleep{};
  std::array<uint8_t, kRanksMax> inbox{};
  std::array<uint8_t, kRanksMax> armed{};
  std::array<uint8_t, kRanksMax> bell{};
  std::array<uint8_t, kRanksMax> sleepers{};
  std::array<uint8_t, kRanksMax> round{};
  std::array<uint8_t, kRanksMax> served{};    // requests of the whole group, as a rank knows
  std::array<uint8_t, 2 * kRanksMax> said{};  // [round % 2][rank]
};

class Doorbells {
 public:
  explicit Doorbells(const Model& model) : model_(model) {}

  Outcome run() const {
    State first;
    for (size_t producer = 0; producer < model_.producers.size(); ++producer) {
      first.place[model_.ranks + producer] =
          model_.defect == Defect::kRingBeforePut ? kReadArmed : kPut;
    }
    return explore_all_orders(first, model_.ranks + static_cast<int>(model_.producers.size()),
                              [this](State& state, int thread, std::string& defect) {
                                return advance(state, static_cast<uint8_t>(thread), defect);
                              });
  }

 private:
  bool is_rank(uint8_t thread) const { return thread < model_.ranks; }
  uint8_t home_of(uint8_t thread) const {
    return is_rank(thread) ? thread : model_.producers[thread - model_.ranks];
  }

  Move advance(State& s, uint8_t thread, std::string& defect) const {
    if (s.place[thread] == kEnd) return Move::kEnded;
    if (s.place[thread] >= kCheck) return wait(s, thread);
    if (s.place[thread] >= kPut) return ring(s, thread);
    return serve(s, thread, defect);
  }

  Move serve(State& s, uint8_t rank, std::string& defect) const {
    uint8_t& place = s.place[rank];
    switch (place) {
      case kAnnounce:
        ++s.round[rank];
        s.said[s.round[rank] % 2 * kRanksMax + rank] = s.inbox[rank];
        s.inbox[rank] = 0;
        place = kMeet;
        break;
      case kMeet: {
        uint8_t sum = 0;
        for (uint8_t peer = 0; peer < model_.ranks; ++peer) {
          if (s.round[peer] < s.round[rank]) return Move::kBlocked;
          sum = static_cast<uint8_t>(sum + s.said[s.round[rank] % 2 * kRanksMax + peer]);
        }
        s.served[rank] = static_cast<uint8_t>(s.served[rank] + sum);
        if (s.served[rank] > model_.producers.size()) defect = "a request was served twice";
        const bool all_served = s.served[rank] == model_.producers.size();
        const Place sleep = model_.defect == Defect::kLookBeforeArm ? kLook : kArm;
        place = all_served ? kEnd : sum > 0 ? kAnnounce : sleep;
        break;
      }
      case kArm:
        ++s.armed[rank];
        place = model_.defect == Defect::kLookBeforeArm || model_.defect == Defect::kNoLookAfterArm
                    ? kCheck
                    : kLook;
        break;
      case kLook:
        if (model_.defect == Defect::kLookBeforeArm) {
          place = s.inbox[rank] > 0 ? kAnnounce : kArm;
        } else {
          place = s.inbox[rank] > 0 ? kReadArmed : kCheck;
        }
        break;
    }
    return Move::kMade;
  }

  Move ring(State& s, uint8_t thread) const {
    const uint8_t home = home_of(thread);
    const bool puts_last = model_.defect == Defect::kRingBeforePut && !is_rank(thread);
    uint8_t& place = s.place[thread];
    uint8_t& target = s.target[thread];
    switch (place) {
      case kPut:
        ++s.inbox[home];
        place = puts_last ? kRaise : kReadArmed;
        break;
      case kReadArmed:
        s.sleep[thread] = s.armed[home];
        target = model_.defect == Defect::kRingOwnOnly ? home : uint8_t{0};
        place = puts_last ? kPut : kRaise;
        break;
      case kRaise:
        s.bell[target] = std::max(s.bell[target], s.sleep[thread]);
        place = kCountSleepers;
        break;
      case kCountSleepers:
        place = kWake;
        if (s.sleepers[target] == 0 || model_.defect == Defect::kNoWake) next_target(s, thread);
        break;
      case kWake:
        if (s.place[target] == kAsleep) s.is_asleep[target] = 0;
        next_target(s, thread);
        break;
    }
    return Move::kMade;
  }

  void next_target(State& s, uint8_t thread) const {
    ++s.target[thread];
    const bool is_last = s.target[thread] == model_.ranks || model_.defect == Defect::kRingOwnOnly;
    s.place[thread] = !is_last ? kRaise : is_rank(thread) ? kCheck : kEnd;
    if (is_last) s.target[thread] = s.sleep[thread] = 0;  // forgotten: equal states are equal
  }

  Move wait(State& s, uint8_t rank) const {
    uint8_t& place = s.place[rank];
    const bool has_rung = s.bell[rank] >= s.armed[rank];
    switch (place) {
      case kCheck:
        place = has_rung ? kAnnounce : kAddSleeper;
        break;
      case kAddSleeper:
        ++s.sleepers[rank];
        place = kRemember;
        break;
      case kRemember:
        s.seen[rank] = s.bell[rank];
        place = has_rung ? kRemoveSleeper : kFallAsleep;
        break;
      case kFallAsleep:
        s.is_asleep[rank] =
            s.bell[rank] == s.seen[rank] || model_.defect == Defect::kSleepBlindly ? 1 : 0;
        place = kAsleep;
        break;
      case kAsleep:
        if (s.is_asleep[rank] != 0) return Move::kBlocked;
        place = kRemoveSleeper;
        break;
      case kRemoveSleeper:
        --s.sleepers[rank];
        s.seen[rank] = 0;
        place = kCheck;
        break;
    }
    return Move::kMade;
  }

  Model model_;
};

TEST(DoorbellProtocol, EveryRequestWakesTheGroupInEveryOrder) {
  size_t states_count = 0;
  for (const Model& model :
       {Model{.ranks = 1, .producers = {0, 0}}, Model{.ranks = 2, .producers = {0}},
        Model{.ranks = 2, .producers = {0, 0}}, Model{.ranks = 2, .producers = {0, 1}},
        Model{.ranks = 3, .producers = {1}}}) {
    const Outcome outcome = Doorbells(model).run();
    EXPECT_EQ(outcome.defect, "");
    states_count += outcome.states_count;
  }
  RecordProperty("states_count", static_cast<int>(states_count));
}

TEST(DoorbellProtocol, EveryMissingStepIsFound) {
  for (const Defect defect :
       {Defect::kNoLookAfterArm, Defect::kLookBeforeArm, Defect::kRingBeforePut,
        Defect::kRingOwnOnly, Defect::kNoWake, Defect::kSleepBlindly}) {
    EXPECT_EQ(Doorbells({.ranks = 2, .producers = {0}, .defect = defect}).run().defect,
              "all sleep: a wake-up was lost")
        << static_cast<int>(defect);
  }
}

}  // namespace
}  // namespace tandem::comm::explorer
