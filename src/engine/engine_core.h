#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/batch.h"
#include "engine/limits.h"
#include "engine/request.h"
#include "engine/schedule.h"
#include "engine/sequence.h"
#include "kv/cache_manager.h"

namespace tandem::engine {

/// What an engine did since it started; a snapshot is cheap to copy.
struct EngineCounters {
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0;  ///< computed by a step (prefix hits are not)
  uint64_t generated_tokens = 0;
  uint64_t preemptions = 0;
  // Of admissions that succeeded: a request that waits for pages is looked up at every turn.
  uint64_t prefix_query_tokens = 0;
  uint64_t prefix_hit_tokens = 0;
};

/// THE loop without its thread: turns requests into events, one step per call. Everything happens
/// on the calling thread, and with the same calls in the same order the same thing happens.
///
/// A sequence is waiting (holds nothing) or running (holds pages for all tokens it knows). Short
/// of pages, the youngest running sequence goes back to the front of the queue and computes its
/// tokens again later; the oldest always advances, so every request ends.
class EngineCore {
 public:
  struct Options {
    Limits limits;
    int64_t (*now_us)();  ///< a monotonic clock
  };
  static Result<std::unique_ptr<EngineCore>> create(const Options& options, StepRunner& runner);

  /// `call` is called each time before events leave, with the counters as they are after them.
  void before_events(std::function<void()> call) { before_events_ = std::move(call); }
  /// Queues a request that validate() let pass.
  void accept(Request request, EventSink& sink, int64_t submitted_us);
  /// Ends a request at the next step(); unknown ids are ignored.
  void cancel(RequestId id);
  /// Ends everything that lives with `error`.
  void fail_all(const Error& error);
  /// One turn: admit, schedule, run, update, emit. False when nothing is left to do.
  bool step();

  size_t running_count() const { return running_.size(); }
  size_t waiting_count() const { return waiting_.size(); }
  uint64_t waiting_tokens() const;  ///< prompts of the waiting list
  const EngineCounters& counters() const { return counters_; }
  kv::CacheStats cache_stats() const { return cache_->stats(); }
  const Limits& limits() const { return options_.limits; }

 private:
  EngineCore(const Options& options, StepRunner& runner, std::unique_ptr<kv::CacheManager> cache);

  // admit.cc: who holds pages
  void admit_waiting();
  bool try_admit(Sequence& sequence);
  void grow_running();
  void preempt_youngest();

  // step.cc: from sequences to sampled tokens
  Result<void> run_step();
  void prepare_sample(Sequence& sequence);

  // update.cc: from sampled tokens to events
  void update();
  void append(Sequence& sequence, const ops::SampledRow& sampled);
  void finish(Sequence& sequence, FinishReason reason, const Error* error);
  Event& event_of(Sequence& sequence);
  void drop_finished();
  void emit();

  Options options_;
  StepRunner& runner_;
  std::unique_ptr<kv::CacheManager> cache_;
  std::deque<std::unique_ptr<Sequence>> waiting_;   // front is next
  std::vector<std::unique_ptr<Sequence>> running_;  // oldest first

  // One step's lists; capacity is kept from step to step.
  std::vector<SequenceView> views_;
  std::vector<Chunk> chunks_;
  std::vector<BatchItem> items_;
  std::vector<ops::SampledRow> sampled_;
  std::vector<Event> events_;                          // the first events_count_ are of this step
  std::vector<EventSink*> sinks_;                      // of each event
  std::vector<std::vector<TokenLogprob>> spare_tops_;  // of each event, while it has no token
  size_t events_count_ = 0;
  uint64_t turn_ = 1;
  EngineCounters counters_;
  std::function<void()> before_events_ = [] {};
};

}  // namespace tandem::engine
