#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/batch.h"
#include "engine/kv_news.h"
#include "engine/limits.h"
#include "engine/ports.h"
#include "engine/request.h"
#include "engine/schedule.h"
#include "engine/sequence.h"
#include "engine/status.h"
#include "kv/cache_manager.h"

namespace tandem::engine {

/// What an engine did since it started; a snapshot is cheap to copy.
struct EngineCounters {
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0;  ///< computed by a step (prefix hits are not)
  uint64_t generated_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t imported_tokens = 0;  ///< K and V came from another engine
  // Of admissions that succeeded: a request that waits for pages is looked up at every turn.
  uint64_t prefix_query_tokens = 0;
  uint64_t prefix_hit_tokens = 0;
};

/// THE loop without its thread: turns requests into events, one step per call. Everything happens
/// on the calling thread, and with the same calls in the same order the same thing happens.
///
/// A sequence is waiting (holds nothing), running (holds pages for all tokens it knows) or awaiting
/// K and V (the same, but it is in no step). Short of pages, the youngest running sequence goes
/// back to the front of the queue and computes or imports its tokens again later; the oldest always
/// advances once imports and leases have ended, so every request ends. Exports keep their pages:
/// they need no more of them, and somebody reads them.
class EngineCore final : public KvPorts {
 public:
  struct Options {
    Limits limits;
    int64_t (*now_us)();               ///< a monotonic clock
    KvSource* source = nullptr;        ///< of imports; outlives this
    StepObserver* observer = nullptr;  ///< of exports; outlives this
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
  /// From the ports: what happened to pages that are lent. Taken up by the next step().
  void tell(KvNews news) override { news_.push_back(std::move(news)); }
  /// One turn: take news, admit, schedule, run, update, emit. False when there is nothing to do
  /// before something comes in.
  bool step();

  size_t running_count() const { return running_.size(); }
  size_t waiting_count() const { return waiting_.size(); }
  size_t awaiting_count() const { return awaiting_.size(); }
  uint64_t waiting_tokens() const;  ///< prompts of the waiting list
  /// What it counts of requests, pages and tokens; it leaves the rest as it is.
  void fill(EngineStatus& status) const;
  const EngineCounters& counters() const { return counters_; }
  kv::CacheStats cache_stats() const { return cache_->stats(); }
  const Limits& limits() const { return options_.limits; }

 private:
  EngineCore(const Options& options, StepRunner& runner, std::unique_ptr<kv::CacheManager> cache);

  // admit.cc: who holds pages
  void admit_waiting();
  bool try_admit(Sequence& sequence);
  size_t growing_count() const;
  void grow_running();
  void preempt_youngest();

  // lend.cc: whose pages other engines touch
  void take_news();
  void take(const KvNews& news);
  void take_arrived(ImportId import);
  void take_failed(const KvNews& news);
  void take_drained(ImportId import);
  std::unique_ptr<Sequence> take_awaiting(ImportId import);
  bool may_lend() const;
  void await_kv(std::unique_ptr<Sequence> sequence);
  void begin_export(std::unique_ptr<Sequence> sequence);
  void release_pages(Sequence& sequence);
  void quarantine(Sequence& sequence);
  void drop_abandoned();

  // step.cc: from sequences to sampled tokens
  Result<void> run_step();
  void tell_observer();
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
  std::deque<std::unique_ptr<Sequence>> waiting_;    // front is next
  std::vector<std::unique_ptr<Sequence>> running_;   // oldest first
  std::vector<std::unique_ptr<Sequence>> awaiting_;  // K and V
  std::vector<std::pair<ImportId, kv::PageLease>> undrained_;
  std::vector<std::pair<RequestId, kv::PageLease>> leases_;  // not delivered
  uint64_t imports_count_ = 0;
  std::vector<KvNews> news_;
  std::vector<KvNews> taken_news_;

  // One step's lists; capacity is kept from step to step.
  std::vector<SequenceView> views_;
  std::vector<Chunk> chunks_;
  std::vector<BatchItem> items_;
  std::vector<ScheduledTokens> exported_;
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
