#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/rank_set.h"
#include "kv/transfer_plan.h"

namespace tandem::ranks {

/// Carries K and V from the first group of one rank set to all groups of another in the same
/// process: what a prefill and decode workers do, with memcpy for a network and without faults.
/// Ports are called on the threads of engines and watches and only leave notes for its own.
class Courier final : public engine::StepObserver, public engine::EventSink {
 public:
  explicit Courier(int target_groups);
  /// Before the sets are gone.
  ~Courier() override;

  engine::KvSource* source_of(int group);
  /// Before the first request.
  void connect(const engine::RankSet& source, const engine::RankSet& target);

  uint64_t arrivals() const { return arrivals_; }

  void on_admitted(RequestId request, uint32_t cached_tokens,
                   std::span<const PageId> pages) override;
  void on_scheduled(uint64_t step, std::span<const engine::ScheduledTokens> parts) override;
  void on_layer_progress(int rank, uint64_t step, uint32_t layer) override;
  void on_events(std::span<engine::Event> events) override;

 private:
  /// Of a target group.
  class End;
  struct Job;
  struct Progress {
    uint64_t step = 0;
    uint32_t layer = 0;
  };
  void note(std::function<void()> call);
  void loop();
  void begin(Job job);
  Job& job_of(RequestId request);
  void advance_all();
  void advance(Job& job);
  uint32_t computed(const Job& job, uint32_t source_rank, uint32_t layer) const;
  void send(const Job& job, const kv::PlanLink& link, uint32_t layer, uint32_t slice);
  void expect_proof(const Job& job);

  const engine::RankSet::Group* source_ = nullptr;
  std::span<const engine::RankSet::Group> targets_;
  std::vector<std::unique_ptr<End>> ends_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> notes_;  // guarded by mutex_
  bool is_stopping_ = false;                 // guarded by mutex_

  // The thread's own.
  std::list<Job> jobs_;
  std::vector<Progress> progress_;  // by source rank
  uint64_t exports_ = 0;
  std::atomic<uint64_t> arrivals_ = 0;
  std::thread thread_;
};

}  // namespace tandem::ranks
