#include "cluster/delivery/kv_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "cluster/delivery/rank_commands.h"
#include "cluster/delivery/sender_rank.h"
#include "cluster/delivery/sidecar_space.h"

namespace tandem::cluster {

using handoff::LinkedKey;
using handoff::LinkId;

struct KvSender::State {
  struct Rank {
    Rank(const kv::KvLayout& layout, uint32_t rank, DataRank moved, io::PostBox& box,
         std::function<void(SenderRankEnd)> on_end)
        : data(std::move(moved)),
          side(layout, rank, data, std::move(on_end)),
          commands(*data.driver, box),
          staging(data.sidecars.size()) {}
    ~Rank() { data.driver.reset(); }  // its commands use the others
    DataRank data;
    SenderRank side;
    RankCommands commands;
    SidecarSpace staging;
  };
  struct Link {
    std::vector<uint64_t> sidecar_records;  // [target ranks] that there is room for
    uint32_t ranks_left = 0;                // that have not answered
    std::optional<Error> error;             // of opening it
    std::function<void(Result<void>)> done;
    bool is_broken = false;
  };
  struct Submission {
    uint32_t rank = 0;
    SenderRank::Portion portion;
  };
  struct Handoff {
    std::shared_ptr<const Delivery> delivery;
    std::shared_ptr<const std::vector<PageId>> pages;
    std::vector<std::optional<uint64_t>> staging;  // [source ranks] that have something to send
    bool has_staging = false;
    bool is_stopped = false;
    std::vector<Submission> waiting;  // for staging, in order
  };

  State(kv::KvLayout layout, std::vector<DataRank> data, io::Executor& executor,
        KvSenderEvents& given_events);
  void opened(LinkId id, uint32_t rank, const Result<void>& result);
  void close_on_all(LinkId link);
  void ended(const SenderRankEnd& end);
  Result<void> check_link(LinkId link) const;
  uint64_t records_of(const kv::TransferPlan& plan, uint32_t rank) const;
  /// Room for its records on all ranks at once, or hand-offs that have it on some would wait for
  /// each other. False when there is none now.
  bool take_staging(Handoff& handoff);
  Result<void> give(const Handoff& handoff, const Submission& submission);
  void give_waiting();

  LinkSource source;
  KvSenderEvents& events;
  io::PostBox box;
  std::vector<std::unique_ptr<Rank>> ranks;  // ended before the box that they post to
  std::map<uint64_t, Link> links;
  std::map<LinkedKey, Handoff> handoffs;
  std::deque<LinkedKey> waiting;  // for staging, in turn
};

KvSender::State::State(kv::KvLayout layout, std::vector<DataRank> data, io::Executor& executor,
                       KvSenderEvents& given_events)
    : source{.layout = std::move(layout)}, events(given_events), box(executor) {
  TANDEM_CHECK(data.size() == source.layout.ranks_count(), "a data rank for every rank");
  for (DataRank& each : data) {
    const auto rank = static_cast<uint32_t>(ranks.size());
    TANDEM_CHECK(
        each.kv->memory().size() == 2 * source.layout.layers * source.layout.pool_bytes(rank),
        "a rank's memory holds all of its pools");
    source.ranks.push_back(each.address);
    const auto on_end = [this](SenderRankEnd end) {
      box.post([this, end = std::move(end)] { ended(end); });
    };
    ranks.push_back(std::make_unique<Rank>(source.layout, rank, std::move(each), box, on_end));
  }
}

KvSender::KvSender(kv::KvLayout layout, std::vector<DataRank> ranks, io::Executor& executor,
                   KvSenderEvents& events)
    : state_(std::make_unique<State>(std::move(layout), std::move(ranks), executor, events)) {}

KvSender::~KvSender() = default;

const LinkSource& KvSender::source() const {
  return state_->source;
}

namespace {

Result<void> check_counts(const LinkOffer& offer, size_t source_ranks) {
  const auto is_whole = [&](const LinkOffer::Rank& rank) {
    return rank.regions.size() == source_ranks;
  };
  if (offer.ranks.size() == offer.layout.ranks_count() &&
      std::ranges::all_of(offer.ranks, is_whole)) {
    return {};
  }
  return make_error(Code::kInvalidArgument, offer.name +
                                                " does not offer memory of each of its ranks to "
                                                "each rank of this worker");
}

}  // namespace

void KvSender::open_link(LinkOffer offer, std::function<void(Result<void>)> done) {
  State* state = state_.get();
  const LinkId id = offer.link;
  const auto ranks_count = static_cast<uint32_t>(state->ranks.size());
  State::Link link{.ranks_left = ranks_count, .done = std::move(done)};
  const auto counts = check_counts(offer, ranks_count);
  for (const LinkOffer::Rank& rank : offer.ranks) {
    uint64_t bytes = std::numeric_limits<uint64_t>::max();
    for (const auto& regions : rank.regions) bytes = std::min(bytes, regions.sidecars.bytes);
    link.sidecar_records.push_back(bytes / sizeof(kv::SidecarRecord));
  }
  const bool is_new = state->links.emplace(id.value, std::move(link)).second;
  TANDEM_CHECK(is_new, "a link is opened once");
  const auto shared = std::make_shared<const LinkOffer>(std::move(offer));
  for (uint32_t i = 0; i < ranks_count; ++i) {
    State::Rank& rank = *state->ranks[i];
    Result<void> given = counts;
    if (given.ok()) {
      given = rank.commands.try_submit([state, &rank, i, shared](transfer::TransferEngine& engine) {
        const auto result = rank.side.open(engine, *shared);
        state->box.post([state, i, id = shared->link, result] { state->opened(id, i, result); });
      });
    }
    if (!given.ok()) state->box.post([state, i, id, given] { state->opened(id, i, given); });
  }
}

void KvSender::State::opened(LinkId id, uint32_t rank, const Result<void>& result) {
  const auto found = links.find(id.value);
  if (found == links.end()) return;  // closed meanwhile
  Link& link = found->second;
  if (!result.ok() && !link.error) {
    link.error = with_context(result.error(), "rank " + std::to_string(rank));
  }
  if (--link.ranks_left > 0) return;
  const auto done = std::exchange(link.done, nullptr);
  if (!link.error) return done({});
  const Error error = *link.error;
  links.erase(found);
  close_on_all(id);
  done(error);
}

void KvSender::State::close_on_all(LinkId link) {
  for (const auto& rank : ranks) {
    rank->commands.submit([side = &rank->side, link](transfer::TransferEngine& engine) {
      side->close(engine, link);
    });
  }
}

void KvSender::close_link(LinkId link) {
  TANDEM_CHECK(std::ranges::none_of(state_->handoffs,
                                    [&](const auto& each) { return each.first.link == link; }),
               "the hand-offs of a link end before it");
  TANDEM_CHECK(state_->links.erase(link.value) == 1, "a link that is closed is open");
  state_->close_on_all(link);
}

Result<void> KvSender::State::check_link(LinkId link) const {
  const auto found = links.find(link.value);
  if (found == links.end() || found->second.ranks_left > 0) {
    return make_error(Code::kUnavailable, "the link is not open");
  }
  if (found->second.is_broken) {
    return make_error(Code::kUnavailable, "the link was broken by an earlier hand-off");
  }
  return {};
}

Result<void> KvSender::begin(Delivery delivery) {
  const LinkedKey handoff = delivery.handoff;
  TANDEM_CHECK(!state_->handoffs.contains(handoff), "a hand-off begins once");
  TANDEM_TRY(state_->check_link(handoff.link));
  TANDEM_TRY(delivery.plan->check_target_pages(delivery.target_pages));
  const kv::SidecarMap map(*delivery.plan);
  const auto& room = state_->links.at(handoff.link.value).sidecar_records;
  for (uint32_t rank = 0; rank < room.size(); ++rank) {
    if (delivery.sidecar_first <= room[rank] &&
        map.records_count(rank) <= room[rank] - delivery.sidecar_first) {
      continue;
    }
    return make_error(
        Code::kInvalidArgument,
        "the hand-off's sidecars lie beyond those of target rank " + std::to_string(rank));
  }
  for (uint32_t rank = 0; rank < state_->ranks.size(); ++rank) {
    const uint64_t needed = state_->records_of(*delivery.plan, rank);
    const uint64_t total = state_->ranks[rank]->data.sidecars.size();
    if (needed <= total) continue;
    return make_error(
        Code::kInvalidArgument,
        fmt::format("the hand-off needs {} sidecar records of source rank {}, which has {}: raise "
                    "--kv-cache-tokens of the prefill worker or --block-size of the decode worker",
                    needed, rank, total));
  }
  State::Handoff begun{.delivery = std::make_shared<const Delivery>(std::move(delivery))};
  begun.staging.resize(state_->ranks.size());
  state_->handoffs.emplace(handoff, std::move(begun));
  return {};
}

void KvSender::set_pages(LinkedKey handoff, std::vector<PageId> pages) {
  state_->handoffs.at(handoff).pages =
      std::make_shared<const std::vector<PageId>>(std::move(pages));
}

uint64_t KvSender::State::records_of(const kv::TransferPlan& plan, uint32_t rank) const {
  const auto links_count = std::ranges::count(plan.links(), rank, &kv::PlanLink::source_rank);
  return static_cast<uint64_t>(links_count) * plan.layers() * kv::SidecarMap(plan).block_records();
}

bool KvSender::State::take_staging(Handoff& handoff) {
  std::vector<std::optional<uint64_t>> taken(ranks.size());
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const uint64_t records = records_of(*handoff.delivery->plan, rank);
    if (records == 0) continue;
    taken[rank] = ranks[rank]->staging.take(records);
    if (taken[rank]) continue;
    for (uint32_t before = 0; before < rank; ++before) {
      if (taken[before]) ranks[before]->staging.give_back(*taken[before]);
    }
    return false;
  }
  handoff.staging = std::move(taken);
  handoff.has_staging = true;
  return true;
}

Result<void> KvSender::State::give(const Handoff& handoff, const Submission& submission) {
  TANDEM_TRY(check_link(handoff.delivery->handoff.link));
  SenderRank::Portion portion = submission.portion;
  portion.staging_first = *handoff.staging[submission.rank];
  Rank& rank = *ranks[submission.rank];
  return rank.commands.try_submit([side = &rank.side, portion](transfer::TransferEngine& engine) {
    side->take(engine, portion);
  });
}

void KvSender::State::give_waiting() {
  while (!waiting.empty()) {
    Handoff& handoff = handoffs.at(waiting.front());
    if (!take_staging(handoff)) return;
    waiting.pop_front();
    for (const Submission& submission : std::exchange(handoff.waiting, {})) {
      const auto given = give(handoff, submission);
      if (given.ok()) continue;
      box.post([this, end = SenderRankEnd{submission.portion.handoff, submission.portion.writes,
                                          given.error()}] { ended(end); });
    }
  }
}

handoff::PrefillerPorts::Submitted KvSender::submit(LinkedKey handoff,
                                                    const handoff::PrefillerPorts::Slices& slices) {
  State::Handoff& sent = state_->handoffs.at(handoff);
  const kv::TransferPlan& plan = *sent.delivery->plan;
  SenderRank::Portion portion{.handoff = handoff,
                              .delivery = sent.delivery,
                              .pages = sent.pages,
                              .layer = slices.layer,
                              .first_slice = plan.slices_ready(slices.tokens_from),
                              .end_slice = plan.slices_ready(slices.tokens_end),
                              .is_last = slices.tokens_end >= plan.tokens().end};
  uint64_t writes = 0;
  for (const kv::PlanLink& link : plan.links()) {
    if (link.source_rank != slices.rank) continue;
    writes += 2 * plan.copies_count(link, portion.first_slice, portion.end_slice);
    writes += portion.is_last ? 1 : 0;
  }
  if (sent.is_stopped || writes == 0) return {};
  TANDEM_CHECK(writes <= std::numeric_limits<uint32_t>::max(), "counts have 32 bits");
  portion.writes = static_cast<uint32_t>(writes);
  if (portion.end_slice > portion.first_slice) {
    const uint32_t page_tokens = state_->source.layout.page_tokens;
    const uint32_t last = plan.slice_tokens(portion.end_slice - 1).end - 1;
    TANDEM_CHECK(sent.pages != nullptr && last / page_tokens < sent.pages->size(),
                 "pages are known before what lies in them is submitted");
  }
  const State::Submission submission{slices.rank, std::move(portion)};
  if (!sent.has_staging) {
    // Nobody overtakes, so that a long one gets its turn.
    if (!sent.waiting.empty() || !state_->waiting.empty() || !state_->take_staging(sent)) {
      if (sent.waiting.empty()) state_->waiting.push_back(handoff);
      sent.waiting.push_back(submission);
      return {.writes = submission.portion.writes};
    }
  }
  if (const auto given = state_->give(sent, submission); !given.ok()) {
    return {.error = given.error()};
  }
  return {.writes = submission.portion.writes};
}

void KvSender::State::ended(const SenderRankEnd& end) {
  if (!end.error) return events.on_delivered(end.handoff, end.writes);
  const auto link = links.find(end.handoff.link.value);
  if (end.is_link_broken && link != links.end() && !link->second.is_broken) {
    link->second.is_broken = true;
    events.on_link_broken(end.handoff.link, *end.error);
  }
  events.on_write_failed(end.handoff, end.writes, *end.error);
}

void KvSender::stop(LinkedKey handoff) {
  State::Handoff& stopped = state_->handoffs.at(handoff);
  stopped.is_stopped = true;
  if (!stopped.waiting.empty()) {
    std::erase(state_->waiting, handoff);
    for (const State::Submission& submission : std::exchange(stopped.waiting, {})) {
      const SenderRankEnd end{.handoff = handoff, .writes = submission.portion.writes};
      state_->box.post([state = state_.get(), end] { state->ended(end); });
    }
    state_->give_waiting();
  }
  for (uint32_t i = 0; i < state_->ranks.size(); ++i) {
    if (!stopped.staging[i]) continue;
    State::Rank& rank = *state_->ranks[i];
    rank.commands.submit([side = &rank.side, handoff](transfer::TransferEngine& engine) {
      side->stop(engine, handoff);
    });
  }
}

void KvSender::end(LinkedKey handoff) {
  const auto ended = state_->handoffs.extract(handoff);
  TANDEM_CHECK(!ended.empty(), "a hand-off ends once");
  for (uint32_t i = 0; i < state_->ranks.size(); ++i) {
    if (!ended.mapped().staging[i]) continue;
    State::Rank& rank = *state_->ranks[i];
    rank.staging.give_back(*ended.mapped().staging[i]);
    rank.commands.submit(
        [side = &rank.side, handoff](transfer::TransferEngine&) { side->forget(handoff); });
  }
  state_->give_waiting();
}

}  // namespace tandem::cluster
