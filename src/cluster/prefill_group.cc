#include "cluster/prefill_group.h"

#include <algorithm>
#include <chrono>

namespace tandem::cluster {
namespace {

handoff::Prefiller::Options fitted(handoff::Prefiller::Options options,
                                   const kv::KvLayout& layout) {
  options.source_ranks = layout.ranks_count();
  options.layers = layout.layers;
  return options;
}

}  // namespace

PrefillGroup::PrefillGroup(handoff::Prefiller::Options protocol, Engine engine, kv::KvLayout layout,
                           std::vector<DataRank> ranks, io::Executor& executor, Send send,
                           Break break_link)
    : engine_(engine),
      layout_(layout),
      timers_(executor),
      send_message_(std::move(send)),
      break_link_(std::move(break_link)),
      protocol_(fitted(protocol, layout_), *this),
      sender_(std::move(layout), std::move(ranks), executor, *this) {
  engine_.events->connect(
      [this](std::vector<engine::Event> events) { on_events(std::move(events)); });
}

PrefillGroup::~PrefillGroup() = default;

int64_t PrefillGroup::now_us() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(timers_.now().time_since_epoch())
      .count();
}

/// After everything that may have changed when the protocol wants to be called.
void PrefillGroup::rearm() {
  if (timer_) timers_.cancel(*timer_);
  timer_.reset();
  const auto next = protocol_.next_timer_us();
  if (!next) return;
  timer_ = timers_.at(io::Time(std::chrono::microseconds(*next)), [this] {
    timer_.reset();
    protocol_.on_timer(now_us());
    rearm();
  });
}

uint64_t PrefillGroup::queued_tokens() const {
  uint64_t tokens = 0;
  for (const auto& [request, entry] : exports_) {
    if (!entry.is_finished) tokens += entry.tokens_end - entry.tokens_computed;
  }
  return tokens;
}

// Links.

void PrefillGroup::open_link(LinkOffer offer, std::function<void(Result<void>)> done) {
  const handoff::LinkId id = offer.link;
  if (links_.contains(id)) {
    return done(make_error(Code::kInvalidArgument, "a link is offered once"));
  }
  if (offer.ranks.size() != offer.layout.ranks_count() || offer.ranks.empty()) {
    return done(make_error(Code::kInvalidArgument, "an offer has as many ranks as its layout"));
  }
  Link link{.layout = offer.layout, .sidecar_records = UINT64_MAX};
  for (size_t rank = 0; rank < offer.ranks.size(); ++rank) {
    const uint64_t bytes =
        2 * offer.layout.layers * offer.layout.pool_bytes(static_cast<uint32_t>(rank));
    const auto& regions = offer.ranks[rank].regions;
    if (regions.size() != layout_.ranks_count()) {
      return done(make_error(Code::kInvalidArgument, "an offer has keys for every source rank"));
    }
    for (const LinkOffer::Regions& opened : regions) {
      if (opened.memory.bytes != bytes) {
        return done(
            make_error(Code::kInvalidArgument, "a rank's memory is not as its layout says"));
      }
      link.sidecar_records =
          std::min(link.sidecar_records, opened.sidecars.bytes / sizeof(kv::SidecarRecord));
    }
  }
  links_[id] = std::move(link);
  sender_.open_link(std::move(offer), [this, id, done = std::move(done)](Result<void> opened) {
    if (opened.ok()) {
      protocol_.on_link_up(id, now_us());
      rearm();
    } else {
      links_.erase(id);
    }
    done(std::move(opened));
  });
}

void PrefillGroup::link_lost(handoff::LinkId id) {
  const auto link = links_.find(id);
  if (link == links_.end() || link->second.is_lost) return;
  link->second.is_lost = true;
  protocol_.on_link_lost(id);
  close_if_over(id);
  rearm();
}

/// A lost link's memory is written to until its hand-offs have ended.
void PrefillGroup::close_if_over(handoff::LinkId id) {
  const auto link = links_.find(id);
  if (link == links_.end() || !link->second.is_lost || link->second.exports > 0) return;
  sender_.close_link(id);
  links_.erase(link);
}

void PrefillGroup::on_message(const handoff::Message& message) {
  protocol_.on_message(message, now_us());
  rearm();
}

void PrefillGroup::send(const handoff::Message& message) {
  send_message_(message);
}

// What the protocol does.

Result<kv::TransferPlan> PrefillGroup::plan(const Link& link, const handoff::Start& start) const {
  const auto tokens_end = static_cast<uint32_t>(start.tokens.size()) - 1;
  auto plan = TANDEM_TRY(kv::TransferPlan::create(
      layout_, link.layout, {.tokens = {start.first_position, tokens_end}, .spread = tokens_end}));
  const auto differs = [](const char* what) {
    return make_error(Code::kInvalidArgument,
                      std::string("the decode worker's ") + what +
                          " differ from the plan; do both workers run the same build?");
  };
  if (start.pages.size() != plan.slices_count()) return differs("pages");
  for (const PageId page : start.pages) {
    if (page.value >= link.layout.pages_total) return differs("pages");
  }
  if (start.writes.size() != link.layout.ranks_count()) return differs("ranks");
  const kv::SidecarMap records(plan);
  for (uint32_t rank = 0; rank < start.writes.size(); ++rank) {
    if (plan.arrivals(rank).total() != start.writes[rank]) return differs("counts");
    const uint64_t needed = records.records_count(rank);
    if (start.sidecar_first > link.sidecar_records ||
        needed > link.sidecar_records - start.sidecar_first) {
      return differs("sidecars");
    }
  }
  return plan;
}

/// What the engine finds in its cache is told later, by on_admitted.
Result<void> PrefillGroup::begin(handoff::LinkedKey handoff, const handoff::Start& start) {
  const auto link = links_.find(handoff.link);
  TANDEM_CHECK(link != links_.end(), "the protocol begins on links that are up");
  auto plan = TANDEM_TRY(this->plan(link->second, start));
  TANDEM_TRY(sender_.begin({.handoff = handoff,
                            .plan = std::make_shared<const kv::TransferPlan>(std::move(plan)),
                            .target_pages = start.pages,
                            .sidecar_first = start.sidecar_first}));
  const RequestId request{++requests_made_};
  engine::Request prompt;
  prompt.id = request;
  prompt.prompt = start.tokens;
  prompt.cache_salt = start.cache_salt;
  prompt.kv_way = engine::KvWay::kExport;
  const Result<void> taken = engine_.client->submit(std::move(prompt), *engine_.events);
  if (!taken.ok()) {
    sender_.end(handoff);
    return taken.error();
  }
  exports_[request] = {.handoff = handoff,
                       .tokens_end = static_cast<uint32_t>(start.tokens.size()) - 1};
  requests_[handoff] = request;
  ++link->second.exports;
  return {};
}

handoff::PrefillerPorts::Submitted PrefillGroup::submit(handoff::LinkedKey handoff,
                                                        const Slices& slices) {
  return sender_.submit(handoff, slices);
}

void PrefillGroup::stop(handoff::LinkedKey handoff) {
  sender_.stop(handoff);
  engine_.client->cancel(requests_.at(handoff));
}

void PrefillGroup::release(handoff::LinkedKey handoff) {
  const auto request = requests_.find(handoff);
  const RequestId id = request->second;
  requests_.erase(request);
  sender_.end(handoff);
  exports_.at(id).is_released = true;
  engine_.client->cancel(id);
  end_if_over(id);
  --links_.at(handoff.link).exports;
  close_if_over(handoff.link);
}

/// The engine's lease begins with the end of the request, so it is not returned before.
void PrefillGroup::end_if_over(RequestId request) {
  const auto found = exports_.find(request);
  if (found == exports_.end()) return;  // its failure led to its release
  if (!found->second.is_released || !found->second.is_finished) return;
  if (found->second.is_admitted) engine_.exports->delivered(request);
  exports_.erase(found);
  if (exports_.empty()) steps_.clear();
}

// What the engine does.

void PrefillGroup::computed(const Export& entry, uint32_t rank, uint32_t layer,
                            uint32_t tokens_end) {
  if (entry.is_released) return;
  // By value: the protocol may end the export.
  const handoff::LinkedKey handoff = entry.handoff;
  protocol_.on_computed(handoff, rank, layer, tokens_end, now_us());
}

void PrefillGroup::on_admitted(RequestId request, uint32_t cached_tokens,
                               std::vector<PageId> pages) {
  const auto found = exports_.find(request);
  TANDEM_CHECK(found != exports_.end(), "the engine tells the end of what it admits");
  Export& entry = found->second;
  entry.is_admitted = true;
  entry.tokens_computed = cached_tokens;
  if (entry.is_released) return;
  sender_.set_pages(entry.handoff, std::move(pages));
  if (cached_tokens == 0) return;
  for (uint32_t rank = 0; rank < layout_.ranks_count(); ++rank) {
    computed(entry, rank, layout_.layers - 1, cached_tokens);
  }
  rearm();
}

void PrefillGroup::on_scheduled(uint64_t number, std::vector<ScheduledExport> parts) {
  Step step{.number = number, .ends = {}, .is_done = std::vector<bool>(layout_.ranks_count())};
  for (ScheduledExport& part : parts) {
    const auto found = exports_.find(part.request);
    if (found == exports_.end()) continue;
    found->second.tokens_computed = part.tokens_end;
    if (found->second.is_released) continue;
    sender_.set_pages(found->second.handoff, std::move(part.pages));
    step.ends.emplace_back(part.request, part.tokens_end);
  }
  if (!step.ends.empty()) steps_.push_back(std::move(step));
}

void PrefillGroup::on_layer_progress(int rank, uint64_t number, uint32_t layer) {
  const auto index = static_cast<uint32_t>(rank);
  for (size_t i = 0; i < steps_.size() && steps_[i].number <= number; ++i) {
    if (steps_[i].is_done[index]) continue;
    const uint32_t done = steps_[i].number < number ? layout_.layers - 1 : layer;
    steps_[i].is_done[index] = done + 1 == layout_.layers;
    const auto ends = steps_[i].ends;  // the protocol may end exports, and with the last the steps
    for (const auto& [request, tokens_end] : ends) {
      const auto found = exports_.find(request);
      if (found != exports_.end()) computed(found->second, index, done, tokens_end);
    }
  }
  while (!steps_.empty() && std::ranges::all_of(steps_.front().is_done, std::identity{})) {
    steps_.pop_front();
  }
  rearm();
}

void PrefillGroup::on_events(std::vector<engine::Event> events) {
  for (engine::Event& event : events) {
    if (!event.finish) continue;
    Export& entry = exports_.at(event.id);
    entry.is_finished = true;
    if (*event.finish != engine::FinishReason::kLength && !entry.is_released) {
      protocol_.on_compute_failed(
          entry.handoff,
          event.error ? *event.error
                      : make_error(Code::kCancelled, "the prefill worker gave the prompt up"),
          now_us());
    }
    end_if_over(event.id);
  }
  rearm();
}

// What the data plane finds.

void PrefillGroup::on_delivered(handoff::LinkedKey handoff, uint32_t writes) {
  protocol_.on_delivered(handoff, writes);
  rearm();
}

void PrefillGroup::on_write_failed(handoff::LinkedKey handoff, uint32_t writes, Error error) {
  protocol_.on_write_failed(handoff, writes, std::move(error), now_us());
  rearm();
}

void PrefillGroup::on_link_broken(handoff::LinkId link, Error error) {
  link_lost(link);
  break_link_(link, error);
}

}  // namespace tandem::cluster
