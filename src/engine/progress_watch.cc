#include "engine/progress_watch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace tandem::engine {
namespace {

using std::chrono::microseconds;

// Between two looks that find nothing new the pause doubles, so a layer is noticed late by about as
// long as it took, and no later than the longer pause: sends of one layer still overlap with the
// computing of the next, and the last layer is not waited for at all, since the end of a step
// wakes. The shorter one is what a sleep takes anyway (the kernel's timer slack).
constexpr microseconds kPauseShortest{50};
constexpr microseconds kPauseLongest{1000};

}  // namespace

class ProgressWatch::Watched final : public StepObserver {
 public:
  Watched(ProgressWatch& watch, Group group)
      : watch_(watch), group_(std::move(group)), told_(group_.ranks.size(), 0) {
    TANDEM_CHECK(group_.observer != nullptr, "somebody wants to know");
    TANDEM_CHECK(group_.layers > 0, "a model has layers");
  }

  void on_admitted(RequestId request, uint32_t cached_tokens,
                   std::span<const PageId> pages) override {
    group_.observer->on_admitted(request, cached_tokens, pages);
  }
  void on_scheduled(uint64_t step, std::span<const ScheduledTokens> parts) override {
    group_.observer->on_scheduled(step, parts);  // first: it must know the step
    change([&] {
      if (!steps.are_open()) steps.first = step;
      steps.scheduled = step;
    });
  }
  void on_step_ended(uint64_t step) override {
    group_.observer->on_step_ended(step);
    change([&] { steps.ended = step; });
  }
  void on_layer_progress(int rank, uint64_t step, uint32_t layer) override {
    group_.observer->on_layer_progress(rank, step, layer);
  }

  /// On the watch's thread: tells what is new, if anything is.
  bool look(const Steps& now) {
    const uint64_t layers = group_.layers;
    const uint64_t last = (now.scheduled + 1) * layers - 1;  // later steps compute for nobody else
    bool has_news = false;
    for (size_t rank = 0; rank < group_.ranks.size(); ++rank) {
      if (!group_.ranks[rank]) continue;
      const uint64_t done = std::min(group_.ranks[rank](), last);
      // A step that is run again repeats its numbers, and what it had written.
      if (done < now.first * layers || done <= told_[rank]) continue;
      told_[rank] = done;
      has_news = true;
      group_.observer->on_layer_progress(static_cast<int>(rank), done / layers,
                                         static_cast<uint32_t>(done % layers));
    }
    return has_news;
  }

  Steps steps;  // guarded by the watch's mutex

 private:
  template <typename Change>
  void change(Change&& change) {
    const std::lock_guard lock(watch_.mutex_);
    change();
    watch_.has_changed_ = true;
    watch_.wake_.notify_one();
  }

  ProgressWatch& watch_;
  const Group group_;
  std::vector<uint64_t> told_;  // by rank; the watch's thread only
};

ProgressWatch::ProgressWatch(std::vector<Group> groups) {
  for (Group& group : groups) {
    groups_.push_back(std::make_unique<Watched>(*this, std::move(group)));
  }
  thread_ = std::thread([this] { loop(); });
  pthread_setname_np(thread_.native_handle(), "kv-watch");
}

ProgressWatch::~ProgressWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

StepObserver& ProgressWatch::observer(size_t group) {
  return *groups_[group];
}

/// Under the mutex.
bool ProgressWatch::has_open() const {
  return std::ranges::any_of(groups_, [](const auto& group) { return group->steps.are_open(); });
}

void ProgressWatch::loop() {
  microseconds pause = kPauseShortest;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return is_stopping_ || has_open(); });
    if (is_stopping_) return;
    has_changed_ = false;
    bool has_news = false;
    for (const auto& group : groups_) {
      const Steps now = group->steps;  // before the counters are read: what has ended is in them
      if (!now.are_open()) continue;
      lock.unlock();
      has_news = group->look(now) || has_news;
      lock.lock();
      group->steps.seen = now.ended;
    }
    pause = has_news ? kPauseShortest : std::min(2 * pause, kPauseLongest);
    if (!has_open()) continue;
    wake_.wait_for(lock, pause, [&] { return is_stopping_ || has_changed_; });
  }
}

}  // namespace tandem::engine
