#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace tandem::comm::explorer {

struct Outcome {
  std::string defect;  ///< empty when every order of steps ends well
  size_t states_count = 0;
};

/// What became of one step of one thread.
enum class Move {
  kMade,
  kBlocked,  ///< it cannot run now
  kEnded,    ///< it has no more steps
};

/// Runs threads in every order of their steps (sequentially consistent, no time limits on sleep),
/// visiting each state once. `advance(state, thread, defect)` makes the thread's next step and may
/// say what is wrong. That all threads that have not ended are blocked is a defect too. A state
/// is plain bytes, so that states can be compared.
template <typename State, typename Advance>
Outcome explore_all_orders(const State& first, int threads_count, Advance&& advance) {
  static_assert(std::has_unique_object_representations_v<State>, "no byte of it is padding");
  Outcome outcome;
  std::unordered_set<std::string> visited;
  const auto visit = [&](const State& state) {
    const bool is_new = visited.emplace(reinterpret_cast<const char*>(&state), sizeof state).second;
    if (is_new) ++outcome.states_count;
    return is_new;
  };
  std::vector<State> open = {first};
  visit(first);
  while (!open.empty() && outcome.defect.empty()) {
    const State state = open.back();
    open.pop_back();
    bool is_done = true;
    bool can_move = false;
    for (int thread = 0; thread < threads_count; ++thread) {
      State after = state;
      const Move move = advance(after, thread, outcome.defect);
      if (move != Move::kEnded) is_done = false;
      if (move != Move::kMade) continue;
      can_move = true;
      if (visit(after)) open.push_back(after);
    }
    if (!is_done && !can_move) outcome.defect = "all sleep: a wake-up was lost";
  }
  return outcome;
}

}  // namespace tandem::comm::explorer
