// From sampled tokens to events: append, stop, free, tell.
#include <algorithm>

#include "engine/engine_core.h"

namespace tandem::engine {

void EngineCore::update() {
  size_t sampled_index = 0;
  auto failed = runner_.failed_items();
  for (size_t item = 0; item < chunks_.size(); ++item) {
    const Chunk& chunk = chunks_[item];
    Sequence& sequence = *running_[chunk.sequence];
    if (!failed.empty() && failed.front().item == item) {
      // Its pages are not committed, so no other sequence will find them.
      if (items_[item].sample != nullptr) ++sampled_index;
      finish(sequence, FinishReason::kError, &failed.front().error);
      failed = failed.subspan(1);
      continue;
    }
    // What a prefill computes again after a preemption counts again: it is work done.
    if (chunk.tokens > 1 || sequence.tokens_computed < sequence.prompt_tokens) {
      counters_.prompt_tokens += chunk.tokens;
    }
    sequence.tokens_computed += chunk.tokens;
    cache_->commit(sequence.cache, std::span(sequence.tokens).first(sequence.tokens_computed));
    if (sequence.tokens_computed == sequence.tokens.size()) {
      append(sequence, sampled_[sampled_index++]);
    } else if (sequence.is_export() && sequence.tokens_computed == sequence.tokens_wanted()) {
      finish(sequence, FinishReason::kLength, nullptr);
    }
  }
}

void EngineCore::append(Sequence& sequence, const ops::SampledRow& sampled) {
  if (!sampled.finite) {
    const Error error = make_error(
        Code::kInternal,
        "the model's output is not a finite number for this prompt; the weights may be damaged, or "
        "the sequence overflows the compute type: check the checkpoint, or try --dtype f32");
    return finish(sequence, FinishReason::kError, &error);
  }
  const Request& request = sequence.request;
  if (sequence.first_token_us == 0) sequence.first_token_us = options_.now_us();
  sequence.tokens.push_back(sampled.token);
  ++counters_.generated_tokens;

  Event& event = event_of(sequence);
  event.tokens.resize(1);
  GeneratedToken& token = event.tokens.front();
  token.token = sampled.token;
  token.logprob = sampled.logprob;
  token.top = std::move(spare_tops_[sequence.event_index]);
  token.top.reserve(sampled.top().size());
  for (const ops::TokenLogprob& top : sampled.top()) {
    token.top.push_back({.token = top.token, .logprob = top.logprob});
  }

  const bool stops =
      std::ranges::find(request.stop_tokens, sampled.token) != request.stop_tokens.end();
  if (stops) {
    finish(sequence, FinishReason::kStop, nullptr);
  } else if (sequence.generated_tokens() >= request.tokens_max ||
             sequence.tokens.size() >= options_.limits.model_length_max) {
    finish(sequence, FinishReason::kLength, nullptr);
  }
}

void EngineCore::finish(Sequence& sequence, FinishReason reason, const Error* error) {
  if (sequence.finished) return;  // cancelled twice, or cancelled and then failed
  sequence.finished = true;
  Event& event = event_of(sequence);
  event.finish = reason;
  if (error != nullptr) event.error = *error;
  const int64_t now = options_.now_us();
  const int64_t scheduled = sequence.scheduled_us == 0 ? now : sequence.scheduled_us;
  const int64_t first_token = sequence.first_token_us == 0 ? now : sequence.first_token_us;
  event.timing = {.queue_us = scheduled - sequence.submitted_us,
                  .prefill_us = std::max<int64_t>(first_token - scheduled, 0),
                  .decode_us = std::max<int64_t>(now - first_token, 0)};
}

/// The sequence's event of this turn, made when first asked for.
Event& EngineCore::event_of(Sequence& sequence) {
  if (sequence.event_turn == turn_) return events_[sequence.event_index];
  if (events_count_ == events_.size()) {  // a burst of cancellations; grows once
    events_.emplace_back();
    sinks_.push_back(nullptr);
    spare_tops_.emplace_back();
  }
  sequence.event_turn = turn_;
  sequence.event_index = events_count_;
  sinks_[events_count_] = sequence.sink;
  Event& event = events_[events_count_];
  if (!event.tokens.empty()) {  // of an earlier turn, and the sink left it: its memory serves again
    spare_tops_[events_count_] = std::move(event.tokens.front().top);
    spare_tops_[events_count_].clear();
    event.tokens.clear();
  }
  ++events_count_;
  event.id = sequence.request.id;
  event.finish.reset();
  event.error.reset();
  event.prompt_tokens = sequence.prompt_tokens;
  event.cached_tokens = sequence.cached_tokens;
  event.timing = {};
  return event;
}

void EngineCore::emit() {
  drop_finished();
  if (events_count_ > 0) before_events_();
  // One call per run of events with the same sink: usually one call per step.
  for (size_t begin = 0; begin < events_count_;) {
    size_t end = begin + 1;
    while (end < events_count_ && sinks_[end] == sinks_[begin]) ++end;
    sinks_[begin]->on_events(std::span(events_).subspan(begin, end - begin));
    begin = end;
  }
  events_count_ = 0;
  ++turn_;
}

void EngineCore::drop_finished() {
  for (auto& sequence : running_) {
    if (sequence->finished) release_pages(*sequence);
  }
  drop_abandoned();
  std::erase_if(running_, [](const auto& sequence) { return sequence->finished; });
  std::erase_if(waiting_, [](const auto& sequence) { return sequence->finished; });
}

}  // namespace tandem::engine
