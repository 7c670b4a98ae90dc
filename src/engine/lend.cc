// Whose pages other engines touch: sequences that wait for K and V, sequences that compute them for
// others, and what is left of both when they end (ports.h).
#include <algorithm>

#include "engine/engine_core.h"

namespace tandem::engine {

void EngineCore::take_news() {
  std::swap(news_, taken_news_);
  for (const KvNews& news : taken_news_) take(news);
  taken_news_.clear();
}

void EngineCore::take(const KvNews& news) {
  switch (news.kind) {
    case KvNews::Kind::kArrived:
      return take_arrived(news.import);
    case KvNews::Kind::kFailed:
      return take_failed(news);
    case KvNews::Kind::kDrained:
      return take_drained(news.import);
    case KvNews::Kind::kDelivered:
      std::erase_if(leases_, [&](const auto& kept) { return kept.first == news.request; });
      for (auto& sequence : running_) {
        if (sequence->request.id == news.request) sequence->is_delivered = true;
      }
      return;
  }
}

void EngineCore::take_drained(ImportId import) {
  std::erase_if(undrained_, [import](const auto& kept) { return kept.first == import; });
  // One that was cancelled a moment ago is not in quarantine yet, and need not be.
  for (auto& sequence : awaiting_) {
    if (sequence->import != import || !sequence->finished) continue;
    cache_->release(sequence->cache);
    sequence->import = {};
  }
}

/// Out of the list, if it is still waited for.
std::unique_ptr<Sequence> EngineCore::take_awaiting(ImportId import) {
  const auto found = std::ranges::find_if(awaiting_, [import](const auto& sequence) {
    return sequence->import == import && !sequence->finished;
  });
  if (found == awaiting_.end()) return nullptr;
  std::unique_ptr<Sequence> sequence = std::move(*found);
  awaiting_.erase(found);
  return sequence;
}

void EngineCore::take_arrived(ImportId import) {
  std::unique_ptr<Sequence> sequence = take_awaiting(import);
  if (sequence == nullptr) return;
  const auto end = static_cast<uint32_t>(sequence->tokens.size()) - 1;
  counters_.imported_tokens += end - sequence->tokens_computed;
  sequence->tokens_computed = end;
  sequence->import = {};
  cache_->commit(sequence->cache, std::span(sequence->tokens).first(end));
  undrained_.emplace_back(import, cache_->hold(sequence->cache));
  running_.push_back(std::move(sequence));
}

void EngineCore::take_failed(const KvNews& news) {
  std::unique_ptr<Sequence> sequence = take_awaiting(news.import);
  if (sequence == nullptr) return;
  quarantine(*sequence);
  if (news.then == AfterFailure::kEnd) return finish(*sequence, FinishReason::kError, &*news.error);
  if (news.then == AfterFailure::kRecompute) sequence->request.kv_way = KvWay::kHere;
  sequence->tokens_computed = 0;
  waiting_.push_front(std::move(sequence));
}

/// Whether one more sequence may become a lease or a quarantine.
bool EngineCore::may_lend() const {
  const auto exports =
      std::ranges::count_if(running_, [](const auto& sequence) { return sequence->is_export(); });
  return cache_->leases_count() + awaiting_.size() + static_cast<size_t>(exports) <
         options_.limits.leases_max;
}

void EngineCore::await_kv(std::unique_ptr<Sequence> sequence) {
  sequence->import = ImportId{++imports_count_};
  const uint32_t page_tokens = options_.limits.page_tokens;
  const kv::TokenRange range{sequence->tokens_computed,
                             static_cast<uint32_t>(sequence->tokens.size()) - 1};
  const uint32_t first_page = range.first / page_tokens;
  const uint32_t pages_count = (range.end - 1) / page_tokens + 1 - first_page;
  const Sequence& s = *sequence;
  awaiting_.push_back(std::move(sequence));
  options_.source->reserve({.import = s.import,
                            .request = s.request.id,
                            .tokens = s.tokens,
                            .range = range,
                            .pages = s.cache.pages().subspan(first_page, pages_count)});
}

/// What is cached already may be all there is to compute.
void EngineCore::begin_export(std::unique_ptr<Sequence> sequence) {
  options_.observer->on_admitted(sequence->request.id, sequence->tokens_computed,
                                 sequence->cache.pages());
  if (sequence->tokens_computed < sequence->tokens_wanted()) {
    running_.push_back(std::move(sequence));
    return;
  }
  finish(*sequence, FinishReason::kLength, nullptr);
  release_pages(*sequence);
}

/// Of a sequence that ends: others may still read them.
void EngineCore::release_pages(Sequence& sequence) {
  if (sequence.is_export() && !sequence.is_delivered) {
    leases_.emplace_back(sequence.request.id, cache_->lease(sequence.cache));
  } else {
    cache_->release(sequence.cache);
  }
}

/// Others may still write them.
void EngineCore::quarantine(Sequence& sequence) {
  undrained_.emplace_back(sequence.import, cache_->quarantine(sequence.cache));
  sequence.import = {};
}

void EngineCore::drop_abandoned() {
  for (auto& sequence : awaiting_) {
    if (!sequence->finished || sequence->import == ImportId{}) continue;
    const ImportId import = sequence->import;
    quarantine(*sequence);
    options_.source->abandon(import);
  }
  std::erase_if(awaiting_, [](const auto& sequence) { return sequence->finished; });
}

}  // namespace tandem::engine
