#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/testing/interleavings.h"

namespace tandem::comm::explorer {

constexpr int kRanksMax = 3;
constexpr int kFlagsMax = 2;    // sets of one flag per source rank
constexpr int kBuffersMax = 6;  // places per source rank in every heap

/// One atomic step of a rank. A wait is the block kCheck ... kRemoveSleeper.
struct Step {
  enum class Kind : uint8_t {
    kPut,            ///< write `epoch` into the peer's place for us
    kRaise,          ///< store `epoch` in the peer's flag for us
    kCountSleepers,  ///< skip the next step if nobody is counted as a sleeper there
    kWake,           ///< wake who sleeps there now
    kCheck,          ///< if our flag has come, leave the block
    kAddSleeper,     ///< count ourselves as a sleeper
    kLook,           ///< remember the flag; if it has come, go to kRemoveSleeper
    kSleep,          ///< if the flag still is what we remember, fall asleep (one step: a futex)
    kSleepBlindly,   ///< fall asleep whatever the flag is; no part of the protocol
    kAsleep,         ///< cannot run while asleep
    kRemoveSleeper,  ///< and back to kCheck
    kRead,           ///< read the peer's `epoch` from our place for it
  };
  Kind kind;
  uint8_t peer;
  uint8_t flag = 0;
  uint8_t buffer = 0;
  uint8_t epoch = 0;
};

using Program = std::vector<Step>;

/// Everything that all ranks share or remember. Plain bytes, so that states can be compared.
struct State {
  std::array<uint8_t, kRanksMax> next{};  // step of each rank
  std::array<uint8_t, kRanksMax> seen{};
  std::array<uint8_t, kRanksMax> is_asleep{};
  uint8_t flags[kRanksMax][kFlagsMax][kRanksMax]{};     // [owner][flag][source]
  uint8_t sleepers[kRanksMax][kFlagsMax][kRanksMax]{};  // [owner][flag][source]
  uint8_t places[kRanksMax][kBuffersMax][kRanksMax]{};  // [owner][buffer][source]: epoch in it
  uint8_t unread[kRanksMax][kBuffersMax][kRanksMax]{};  // the owner still has to read it
};

/// Runs one program per rank, in every order of their steps.
class Explorer {
 public:
  explicit Explorer(std::vector<Program> programs) : programs_(std::move(programs)) {}

  Outcome run() const {
    return explore_all_orders(State{}, static_cast<int>(programs_.size()),
                              [this](State& state, int thread, std::string& defect) {
                                return advance(state, static_cast<uint8_t>(thread), defect);
                              });
  }

 private:
  /// long: one case per kind of step
  Move advance(State& s, uint8_t rank, std::string& defect) const {
    if (s.next[rank] == programs_[rank].size()) return Move::kEnded;
    const Step& step = programs_[rank][s.next[rank]];
    uint8_t& flag_there = s.flags[step.peer][step.flag][rank];
    uint8_t& flag_here = s.flags[rank][step.flag][step.peer];
    int move = 1;
    switch (step.kind) {
      case Step::Kind::kPut: {
        uint8_t& unread = s.unread[step.peer][step.buffer][rank];
        if (unread != 0) defect = "overwritten before it was read";
        unread = 1;
        s.places[step.peer][step.buffer][rank] = step.epoch;
        break;
      }
      case Step::Kind::kRaise:
        flag_there = std::max(flag_there, step.epoch);
        break;
      case Step::Kind::kCountSleepers:
        if (s.sleepers[step.peer][step.flag][rank] == 0) move = 2;
        break;
      case Step::Kind::kWake:
        if (sleeps_on(s, step.peer, step.flag, rank)) s.is_asleep[step.peer] = 0;
        break;
      case Step::Kind::kCheck:
        if (flag_here >= step.epoch) move = distance(s, rank, Step::Kind::kRemoveSleeper) + 1;
        break;
      case Step::Kind::kAddSleeper:
        ++s.sleepers[rank][step.flag][step.peer];
        break;
      case Step::Kind::kLook:
        s.seen[rank] = flag_here;
        if (flag_here >= step.epoch) move = distance(s, rank, Step::Kind::kRemoveSleeper);
        break;
      case Step::Kind::kSleep:
        s.is_asleep[rank] = flag_here == s.seen[rank] ? 1 : 0;
        break;
      case Step::Kind::kSleepBlindly:
        s.is_asleep[rank] = 1;
        break;
      case Step::Kind::kAsleep:
        if (s.is_asleep[rank] != 0) return Move::kBlocked;
        break;
      case Step::Kind::kRemoveSleeper:
        if (s.sleepers[rank][step.flag][step.peer] > 0) --s.sleepers[rank][step.flag][step.peer];
        s.seen[rank] = 0;  // forgotten, so that equal states are equal
        move = -distance_back(s, rank);
        break;
      case Step::Kind::kRead:
        if (s.places[rank][step.buffer][step.peer] != step.epoch) {
          defect = "read before it was written";
        }
        s.unread[rank][step.buffer][step.peer] = 0;
        break;
    }
    s.next[rank] = static_cast<uint8_t>(s.next[rank] + move);
    return Move::kMade;
  }

  bool sleeps_on(const State& s, uint8_t rank, uint8_t flag, uint8_t source) const {
    if (s.next[rank] == programs_[rank].size()) return false;
    const Step& step = programs_[rank][s.next[rank]];
    return step.kind == Step::Kind::kAsleep && step.flag == flag && step.peer == source;
  }

  int distance(const State& s, uint8_t rank, Step::Kind kind) const {
    int steps = 0;
    while (programs_[rank][static_cast<size_t>(s.next[rank] + steps)].kind != kind) ++steps;
    return steps;
  }

  int distance_back(const State& s, uint8_t rank) const {
    int steps = 0;
    while (programs_[rank][static_cast<size_t>(s.next[rank] - steps)].kind != Step::Kind::kCheck) {
      ++steps;
    }
    return steps;
  }

  std::vector<Program> programs_;
};

}  // namespace tandem::comm::explorer
