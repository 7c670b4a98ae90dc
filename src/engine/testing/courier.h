#pragma once

// long: both ends of a hand-off, read as one.

#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/engine_core.h"
#include "engine/testing/hash_runner.h"
#include "kv/transfer_plan.h"

namespace tandem::engine::testing {

/// Carries K and V between two engines of one thread, as their plan says: a hand-off without wires.
/// Everything that a network may do is a choice of the caller: parts arrive late, an import fails,
/// and what was abandoned is written to for a while yet.
class Courier final : public KvSource, public StepObserver, public EventSink {
 public:
  /// Returns a number below its argument.
  using Choose = std::function<uint32_t(uint32_t)>;
  struct End {
    EngineCore* engine = nullptr;
    kv::KvLayout layout;
    /// The start of a pool: K of layer 0, V of layer 0, K of layer 1 and so on.
    std::function<std::byte*(uint32_t rank, uint32_t pool)> pool;
    uint32_t pools_count = 0;
  };
  /// An engine over the model of hashes: one number a slot.
  static End end_of(EngineCore& engine, HashRunner& runner, const Limits& limits) {
    return {.engine = &engine,
            .layout = {.element = kv::KvElement::kF32,  // two of them are one slot
                       .layers = 1,
                       .kv_heads = 1,
                       .head_dim = 2,
                       .page_tokens = limits.page_tokens,
                       .pages_total = limits.pages_total,
                       .rank_heads = kv::KvLayout::even_heads(1, 1)},
            .pool = [&runner](uint32_t,
                              uint32_t) { return std::as_writable_bytes(runner.slots()).data(); },
            .pools_count = 1};
  }

  explicit Courier(Choose choose) : choose_(std::move(choose)) {}
  /// Before the first step of either.
  void connect(const End& source, const End& target) {
    source_ = source;
    target_ = target;
    TANDEM_CHECK(source.pools_count == target.pools_count, "both ends have the same layers");
  }

  /// One in so many turns an import fails for no reason; 0: never.
  uint32_t failure_one_in = 0;
  /// Called when all of a job is sent, before the target hears it.
  std::function<void(const kv::TransferPlan&, const kv::TransferPlan::Pages&)> inspect =
      [](const auto&, const auto&) {};

  uint64_t imports = 0;
  uint64_t arrivals = 0;
  uint64_t failures = 0;
  uint64_t late_writes = 0;
  uint64_t cached_at_source = 0;

  /// Between steps: parts of some jobs go on their way.
  void turn() {
    for (Job& job : jobs_) {
      if (choose_(3) != 0) advance(job);
    }
    std::erase_if(jobs_, [](const Job& job) { return job.is_done; });
  }
  bool is_idle() const { return jobs_.empty(); }

  void reserve(const KvReservation& r) override {
    ++imports;
    TANDEM_CHECK(!r.range.empty(), "an empty range is no hand-off");
    TANDEM_CHECK(r.range.end + 1 == r.tokens.size(), "the last token is the target's");
    Job job{.import = r.import,
            .plan = kv::TransferPlan::create(source_.layout, target_.layout,
                                             {.tokens = r.range, .spread = choose_(8)})
                        .value()};
    job.tokens.assign(r.tokens.begin(), r.tokens.end());
    job.target_pages.assign(r.pages.begin(), r.pages.end());
    TANDEM_CHECK(job.target_pages.size() == job.plan.target_pages().count(), "as many as planned");
    jobs_.push_back(std::move(job));
  }
  void abandon(ImportId import) override {
    for (Job& job : jobs_) {
      if (job.import == import) give_up(job);
    }
  }

  void on_admitted(RequestId request, uint32_t cached_tokens,
                   std::span<const PageId> pages) override {
    Job& job = job_of(request);
    TANDEM_CHECK(!job.is_admitted, "an export keeps its pages");
    job.source_pages = pages;
    job.is_admitted = true;
    job.computed = job.scheduled = cached_tokens;
    cached_at_source += cached_tokens;
  }
  void on_scheduled(uint64_t step, std::span<const ScheduledTokens> parts) override {
    TANDEM_CHECK(step > last_step_, "steps are numbered upwards");
    last_step_ = step;
    for (const ScheduledTokens& part : parts) {
      Job& job = job_of(part.request);
      TANDEM_CHECK(part.tokens.first == job.scheduled, "chunks follow one another");
      TANDEM_CHECK(part.pages.data() == job.source_pages.data(), "pages stay where they are");
      job.scheduled = part.tokens.end;
    }
  }
  /// The model of hashes has one layer, which is done when its step is.
  void on_layer_progress(int, uint64_t, uint32_t) override {}

  /// Of exports. A step is over: what it computed may be sent, unless it failed.
  void on_events(std::span<Event> events) override {
    for (const Event& event : events) {
      TANDEM_CHECK(event.finish.has_value() && event.tokens.empty(), "exports generate nothing");
      Job& job = job_of(event.id);
      job.export_ended = true;
      job.export_failed = *event.finish != FinishReason::kLength;
      if (!job.export_failed) job.computed = job.scheduled;
    }
  }

 private:
  struct Job {
    ImportId import;
    kv::TransferPlan plan;
    std::vector<TokenId> tokens;
    std::vector<PageId> target_pages;
    std::optional<RequestId> request;  // of the export, once it is asked for
    std::span<const PageId> source_pages;
    uint32_t scheduled = 0;  // positions that steps were made for
    uint32_t computed = 0;   // of these, known to be in the pages
    uint32_t sent = 0;       // slices
    bool is_admitted = false;
    bool export_ended = false;
    bool export_failed = false;
    bool is_given_up = false;
    bool has_arrived = false;
    bool is_done = false;
  };

  Job& job_of(RequestId request) {
    for (Job& job : jobs_) {
      if (job.request == request) return job;
    }
    TANDEM_CHECK(false, "an export that nobody asked for");
    return jobs_.front();
  }

  void advance(Job& job) {
    if (job.has_arrived) return settle(job);
    if (job.is_given_up) return drain(job);
    if (!job.request) return ask(job);
    if (job.export_failed || (failure_one_in > 0 && choose_(failure_one_in) == 0)) {
      return fail(job);
    }
    if (!job.is_admitted) return;
    // A step that did not end the export succeeded if another one followed it, or none runs now.
    if (!job.export_ended) job.computed = job.scheduled;
    const uint32_t ready = job.plan.slices_ready(job.computed);
    while (job.sent < ready && choose_(4) != 0) send(job, job.sent++);
    if (job.sent < job.plan.slices_count() || !job.export_ended) return;
    ++arrivals;
    inspect(job.plan, pages_of(job));
    target_.engine->arrived(job.import);
    job.has_arrived = true;
  }

  void ask(Job& job) {
    job.request = RequestId{kFirstExport + exports_++};
    source_.engine->accept({.id = *job.request, .prompt = job.tokens, .kv_way = KvWay::kExport},
                           *this, 0);
  }

  void fail(Job& job) {
    ++failures;
    constexpr AfterFailure kThen[] = {AfterFailure::kEnd, AfterFailure::kRecompute,
                                      AfterFailure::kRetry};
    target_.engine->failed(job.import, make_error(Code::kUnavailable, "the courier lost it"),
                           kThen[choose_(3)]);
    give_up(job);
  }

  void give_up(Job& job) {
    if (job.has_arrived) return;  // the news crossed
    job.is_given_up = true;
    if (job.request && !job.export_ended) source_.engine->cancel(*job.request);
  }

  /// What has arrived is written once more, as a network may do that repeats.
  void settle(Job& job) {
    if (job.sent > 0 && choose_(3) != 0) {
      ++late_writes;
      return send(job, choose_(job.sent));
    }
    source_.engine->delivered(*job.request);
    target_.engine->drained(job.import);
    job.is_done = true;
  }

  /// Writes land for a while. The source is told that it may have its pages back at any time, the
  /// target that nothing lands any more at the end.
  void drain(Job& job) {
    if (job.is_admitted && job.sent < job.plan.slices_ready(job.computed) && choose_(4) != 0) {
      ++late_writes;
      return send(job, job.sent++);
    }
    if (job.request && !job.export_ended) return;
    if (job.is_admitted) source_.engine->delivered(*job.request);
    target_.engine->drained(job.import);
    job.is_done = true;
  }

  static kv::TransferPlan::Pages pages_of(const Job& job) {
    const kv::PageRange pages = job.plan.source_pages();
    return {job.source_pages.subspan(pages.first, pages.count()), job.target_pages};
  }

  void send(const Job& job, uint32_t slice) {
    for (const kv::PlanLink& link : job.plan.links()) {
      for (uint32_t pool = 0; pool < source_.pools_count; ++pool) {
        const std::byte* source = source_.pool(link.source_rank, pool);
        std::byte* target = target_.pool(link.target_rank, pool);
        job.plan.for_each_copy(link, slice, pages_of(job), [&](const kv::PageCopy& copy) {
          std::memcpy(target + copy.target_offset, source + copy.source_offset, copy.bytes);
        });
      }
    }
  }

  static constexpr uint64_t kFirstExport = 1'000'000;
  Choose choose_;
  End source_;
  End target_;
  std::list<Job> jobs_;
  uint64_t exports_ = 0;
  uint64_t last_step_ = 0;
};

}  // namespace tandem::engine::testing
