// Goal: observers hear how far each rank is, never more than is written, the last layer of every
// step that succeeds, and nothing that they cannot know; between steps and after one that failed
// nobody looks at the counters.
// Method: the test plays the engine and the ranks: it moves counters as ModelRunner does, with
// threads of its own so that the thread sanitizer sees all there is to see. Waits are for what is
// heard, with a generous limit.
#include "engine/progress_watch.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <set>

namespace tandem::engine {
namespace {

constexpr uint32_t kLayers = 5;
constexpr int kRanks = 3;

uint64_t last_of(uint64_t step) {
  return (step + 1) * kLayers - 1;
}

/// Counters of the ranks of one group, and who is told of them.
class Group final : public StepObserver {
 public:
  void on_admitted(RequestId request, uint32_t cached, std::span<const PageId> pages) override {
    EXPECT_EQ(request, RequestId{4});
    EXPECT_EQ(cached, 16u);
    EXPECT_EQ(pages.size(), 2u);
    ++admitted;
  }
  void on_scheduled(uint64_t step, std::span<const ScheduledTokens>) override {
    const std::lock_guard lock(mutex_);
    scheduled_.insert(step);
  }
  void on_step_ended(uint64_t step) override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(scheduled_.contains(step));
    ended_ = step;
  }
  void on_layer_progress(int rank, uint64_t step, uint32_t layer) override {
    const auto at = static_cast<size_t>(rank);
    const uint64_t told = step * kLayers + layer;
    EXPECT_LT(layer, kLayers);
    EXPECT_LE(told, counters[at].load()) << "more than is written";
    const std::lock_guard lock(mutex_);
    EXPECT_GT(told, heard_[at]) << "nothing new";
    EXPECT_LE(step, *scheduled_.rbegin()) << "a step that nobody knows";
    EXPECT_GE(step, *scheduled_.begin());
    heard_[at] = told;
    changed_.notify_all();
  }

  /// As ModelRunner::forward, on the ranks that are named.
  void write(uint64_t step, uint32_t layer, int first_rank = 0, int end_rank = kRanks) {
    for (int rank = first_rank; rank < end_rank; ++rank) {
      counters[static_cast<size_t>(rank)] = step * kLayers + layer;
    }
  }
  void await(int rank, uint64_t progress) {
    std::unique_lock lock(mutex_);
    const auto at = static_cast<size_t>(rank);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return heard_[at] >= progress; }))
        << "rank " << rank << " is at " << progress << ", heard " << heard_[at];
  }
  void await_all(uint64_t progress) {
    for (int rank = 0; rank < kRanks; ++rank) await(rank, progress);
  }
  uint64_t heard(int rank) {
    const std::lock_guard lock(mutex_);
    return heard_[static_cast<size_t>(rank)];
  }
  /// Until nobody has looked at the counters for a while.
  void await_rest() {
    for (int i = 0; i < 600; ++i) {
      const uint64_t before = looks;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (looks == before) return;
    }
    ADD_FAILURE() << "the counters are still looked at";
  }

  ProgressWatch::Group watched() {
    ProgressWatch::Group group{.observer = this, .layers = kLayers};
    for (std::atomic<uint64_t>& counter : counters) {
      group.ranks.push_back([this, &counter] {
        ++looks;
        return counter.load();
      });
    }
    return group;
  }

  std::array<std::atomic<uint64_t>, kRanks> counters{};
  std::atomic<uint64_t> looks = 0;
  int admitted = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<uint64_t> scheduled_;
  std::array<uint64_t, kRanks> heard_{};
  uint64_t ended_ = 0;
};

TEST(ProgressWatch, TellsEachRanksLayersWhileAStepRuns) {
  Group group;
  ProgressWatch watch({group.watched()});
  StepObserver& engine = watch.observer(0);
  group.write(6, 4);  // of steps that computed for nobody else
  engine.on_admitted(RequestId{4}, 16, std::vector<PageId>(2));
  EXPECT_EQ(group.admitted, 1);
  engine.on_scheduled(7, {});
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    group.write(7, layer, 1, 2);
    group.await(1, 7 * kLayers + layer);
  }
  EXPECT_EQ(group.heard(0), 0u);
  group.write(7, kLayers - 1);
  engine.on_step_ended(7);
  group.await_all(last_of(7));
}

TEST(ProgressWatch, RestsBetweenStepsAndAfterOneThatFailed) {
  Group group;
  Group other;
  ProgressWatch watch({group.watched(), other.watched()});
  StepObserver& engine = watch.observer(0);
  group.await_rest();
  EXPECT_EQ(group.looks, 0u);
  engine.on_scheduled(1, {});
  group.write(1, 2, 0, 1);  // and then it fails
  engine.on_step_ended(1);
  group.await_rest();
  group.write(2, kLayers - 1);  // for nobody else
  group.await_rest();
  EXPECT_EQ(group.heard(0), 1 * kLayers + 2u);
  EXPECT_EQ(group.heard(1), 0u);
  engine.on_scheduled(3, {});
  group.write(3, kLayers - 1);
  engine.on_step_ended(3);
  group.await_all(last_of(3));
  group.await_rest();
  EXPECT_EQ(other.looks, 0u);
}

TEST(ProgressWatch, AStepThatIsRunAgainIsToldOnce) {
  Group group;
  ProgressWatch watch({group.watched()});
  StepObserver& engine = watch.observer(0);
  engine.on_scheduled(1, {});
  group.write(1, 3);
  group.await_all(1 * kLayers + 3);
  for (uint32_t layer = 0; layer < kLayers; ++layer) group.write(1, layer);
  engine.on_step_ended(1);
  group.await_all(last_of(1));
}

TEST(ProgressWatch, LeavesOutRanksOfOtherProcesses) {
  Group group;
  ProgressWatch::Group watched = group.watched();
  watched.ranks[1] = nullptr;
  ProgressWatch watch({std::move(watched)});
  watch.observer(0).on_scheduled(1, {});
  group.write(1, kLayers - 1);
  watch.observer(0).on_step_ended(1);
  group.await(0, last_of(1));
  group.await(2, last_of(1));
  EXPECT_EQ(group.heard(1), 0u);
}

TEST(ProgressWatch, EndsWhileAStepRuns) {
  Group group;
  ProgressWatch watch({group.watched()});
  watch.observer(0).on_scheduled(1, {});
}

// Engines and ranks at their own pace, one step in three for others.
TEST(ProgressWatch, TellsTheLastLayerOfEveryStep) {
  std::array<Group, 2> groups;
  ProgressWatch watch({groups[0].watched(), groups[1].watched()});
  std::vector<std::jthread> engines;
  for (size_t i = 0; i < groups.size(); ++i) {
    engines.emplace_back([&, i] {
      std::mt19937 random(static_cast<uint32_t>(i));
      Group& group = groups[i];
      for (uint64_t step = 1; step <= 2000; ++step) {
        const bool is_for_others = random() % 3 == 0;
        if (is_for_others) watch.observer(i).on_scheduled(step, {});
        for (uint32_t layer = 0; layer < kLayers; ++layer) {
          group.write(step, layer);
          if (random() % 8 == 0) std::this_thread::yield();
        }
        if (!is_for_others) continue;
        watch.observer(i).on_step_ended(step);
        // Usually the next step starts before the watch has seen the end of this one.
        if (random() % 16 == 0) group.await_all(last_of(step));
      }
      watch.observer(i).on_scheduled(2001, {});
      group.write(2001, kLayers - 1);
      watch.observer(i).on_step_ended(2001);
      group.await_all(last_of(2001));
    });
  }
}

}  // namespace
}  // namespace tandem::engine
