#include "cluster/delivery/kv_receiver.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "cluster/delivery/rank_commands.h"
#include "cluster/delivery/receiver_rank.h"

namespace tandem::cluster {
namespace {

transfer::Arrival arrival_of(handoff::Immediate immediate) {
  return transfer::arrival_of(immediate.value);
}
// What is counted here is what a hand-off's key says.
static_assert(transfer::immediate_of({.slot = 0xabcd, .epoch = 0x1234}) ==
              handoff::immediate_of({.slot = 0xabcd, .epoch = 0x9999'1234}).value);

}  // namespace

struct KvReceiver::State {
  struct Rank {
    Rank(const kv::KvLayout& layout, uint32_t rank, DataRank moved, io::PostBox& box)
        : data(std::move(moved)), side(layout, rank, data), commands(*data.driver, box) {}
    ~Rank() { data.driver.reset(); }  // its commands use the others
    DataRank data;
    ReceiverRank side;
    RankCommands commands;
  };
  struct Link {
    LinkOffer offer;
    uint32_t ranks_left = 0;
    std::optional<Error> error;
    std::function<void(Result<LinkOffer>)> done;
  };
  struct Armed {
    uint64_t number = 0;
    std::function<void(Result<void>)> armed;
  };
  using Place = std::pair<handoff::Immediate, uint32_t>;

  State(kv::KvLayout given_layout, std::vector<DataRank> data, io::Executor& executor,
        KvReceiverEvents& given_events);
  void opened(handoff::LinkId id, uint32_t rank, Result<LinkOffer::Rank> result);
  void close_on_all(handoff::LinkId link, const std::function<void(bool)>& then);
  void closed(handoff::LinkId link, bool is_fenced);
  Armed* find_armed(Place place, uint64_t number);
  void verify_from(Rank& rank, uint32_t index, std::shared_ptr<const Delivery> delivery,
                   uint32_t layer);
  void post_verdict(handoff::Key key, uint32_t rank, Result<void> verdict);

  const kv::KvLayout layout;
  KvReceiverEvents& events;
  io::PostBox box;
  std::vector<std::unique_ptr<Rank>> ranks;  // ended before the box that they post to
  std::map<uint64_t, Link> links;
  std::map<uint64_t, uint32_t> fencing;  // link -> ranks that have not said so yet
  std::map<Place, Armed> armed;
  uint64_t armed_made = 0;
};

KvReceiver::State::State(kv::KvLayout given_layout, std::vector<DataRank> data,
                         io::Executor& executor, KvReceiverEvents& given_events)
    : layout(std::move(given_layout)), events(given_events), box(executor) {
  TANDEM_CHECK(data.size() == layout.ranks_count(), "a data rank for every rank of the layout");
  for (DataRank& each : data) {
    const auto rank = static_cast<uint32_t>(ranks.size());
    TANDEM_CHECK(each.kv->memory().size() == 2 * layout.layers * layout.pool_bytes(rank),
                 "a rank's memory holds all of its pools");
    ranks.push_back(std::make_unique<Rank>(layout, rank, std::move(each), box));
    TANDEM_CHECK(ranks[rank]->data.sidecars.size() == ranks[0]->data.sidecars.size(),
                 "sidecars are equally long");
  }
}

KvReceiver::KvReceiver(kv::KvLayout layout, std::vector<DataRank> ranks, io::Executor& executor,
                       KvReceiverEvents& events)
    : state_(std::make_unique<State>(std::move(layout), std::move(ranks), executor, events)) {}

KvReceiver::~KvReceiver() = default;

const kv::KvLayout& KvReceiver::layout() const {
  return state_->layout;
}

bool KvReceiver::can_fence() const {
  return std::ranges::all_of(state_->ranks, [](const auto& rank) { return rank->data.can_fence; });
}

void KvReceiver::open_link(handoff::LinkId link, std::string name, const LinkSource& source,
                           std::function<void(Result<LinkOffer>)> done) {
  State* state = state_.get();
  const auto ranks_count = static_cast<uint32_t>(state->ranks.size());
  const bool is_new =
      state->links
          .emplace(link.value,
                   State::Link{.offer = {.link = link, .name = name, .layout = state->layout},
                               .ranks_left = ranks_count,
                               .done = std::move(done)})
          .second;
  TANDEM_CHECK(is_new, "a link is opened once");
  state->links.at(link.value).offer.ranks.resize(ranks_count);
  for (uint32_t i = 0; i < ranks_count; ++i) {
    State::Rank& rank = *state->ranks[i];
    const auto given = rank.commands.try_submit(
        [state, &rank, i, link, name, source](transfer::TransferEngine& engine) {
          auto result = rank.side.open(engine, link, name, source);
          state->box.post([state, i, link, result] { state->opened(link, i, result); });
        });
    if (given.ok()) continue;
    state->box.post([state, i, link, error = given.error()] { state->opened(link, i, error); });
  }
}

void KvReceiver::State::opened(handoff::LinkId id, uint32_t rank, Result<LinkOffer::Rank> result) {
  const auto found = links.find(id.value);
  if (found == links.end()) return;  // closed meanwhile
  Link& link = found->second;
  if (result.ok()) {
    link.offer.ranks[rank] = *std::move(result);
  } else if (!link.error) {
    link.error = with_context(result.error(), "rank " + std::to_string(rank));
  }
  if (--link.ranks_left > 0) return;
  const auto done = std::exchange(link.done, nullptr);
  if (!link.error) return done(std::move(link.offer));
  const Error error = *link.error;
  links.erase(found);
  close_on_all(id, [](bool) {});
  done(error);
}

void KvReceiver::State::close_on_all(handoff::LinkId link, const std::function<void(bool)>& then) {
  for (const auto& rank : ranks) {
    rank->commands.submit([side = &rank->side, link, then](transfer::TransferEngine& engine) {
      side->close(engine, link, then);
    });
  }
}

void KvReceiver::fence(handoff::LinkId link) {
  State* state = state_.get();
  TANDEM_CHECK(state->links.erase(link.value) == 1, "a link that is fenced is open");
  state->fencing[link.value] = static_cast<uint32_t>(state->ranks.size());
  state->close_on_all(link, [state, link](bool is_fenced) {
    state->box.post([state, link, is_fenced] { state->closed(link, is_fenced); });
  });
}

void KvReceiver::State::closed(handoff::LinkId link, bool is_fenced) {
  const auto found = fencing.find(link.value);
  if (found == fencing.end()) return;  // another rank could not fence it
  if (is_fenced && --found->second > 0) return;
  fencing.erase(found);
  if (is_fenced) events.on_fenced(link);
}

void KvReceiver::forget(handoff::LinkId link) {
  TANDEM_CHECK(state_->links.erase(link.value) == 1, "a link that is forgotten is open");
  state_->close_on_all(link, [](bool) {});
}

KvReceiver::State::Armed* KvReceiver::State::find_armed(Place place, uint64_t number) {
  const auto found = armed.find(place);
  return found != armed.end() && found->second.number == number ? &found->second : nullptr;
}

void KvReceiver::arm(handoff::Immediate immediate, uint32_t rank, uint32_t writes,
                     std::function<void(Result<void>)> armed) {
  State* state = state_.get();
  const State::Place place{immediate, rank};
  const uint64_t number = ++state->armed_made;
  const bool is_new =
      state->armed.emplace(place, State::Armed{.number = number, .armed = std::move(armed)}).second;
  TANDEM_CHECK(is_new, "an immediate that is counted is not armed again");
  const auto tell_armed = [state, place, number](const Result<void>& result) {
    state->box.post([state, place, number, result] {
      State::Armed* found = state->find_armed(place, number);
      if (found == nullptr) return;
      const auto tell = std::move(found->armed);
      if (!result.ok()) state->armed.erase(place);
      tell(result);
    });
  };
  const auto tell_arrived = [state, place, number] {
    state->box.post([state, place, number] {
      if (state->find_armed(place, number) == nullptr) return;
      state->events.on_arrived(place.first, place.second);
    });
  };
  const auto given = state->ranks[rank]->commands.try_submit([=](transfer::TransferEngine& engine) {
    tell_armed(engine.expect(arrival_of(immediate), writes, tell_arrived));
  });
  if (!given.ok()) tell_armed(given);
}

void KvReceiver::drop(handoff::Immediate immediate, uint32_t rank) {
  if (state_->armed.erase({immediate, rank}) == 0) return;
  state_->ranks[rank]->commands.submit([immediate](transfer::TransferEngine& engine) {
    engine.cancel_expected(arrival_of(immediate));
  });
}

void KvReceiver::verify(Delivery delivery) {
  State* state = state_.get();
  const auto shared = std::make_shared<const Delivery>(std::move(delivery));
  const kv::SidecarMap map(*shared->plan);
  for (uint32_t i = 0; i < state->ranks.size(); ++i) {
    State::Rank& rank = *state->ranks[i];
    const uint64_t records = map.records_count(i);
    if (records == 0) {
      state->post_verdict(shared->key, i, {});
      continue;
    }
    const uint64_t records_total = rank.data.sidecars.size();
    TANDEM_CHECK(shared->sidecar_first <= records_total, "sidecars lie in the rank's room");
    TANDEM_CHECK(records <= records_total - shared->sidecar_first, "and all of them");
    const auto given =
        rank.commands.try_submit([state, &rank, i, shared](transfer::TransferEngine&) {
          state->verify_from(rank, i, shared, 0);
        });
    if (!given.ok()) state->post_verdict(shared->key, i, given);
  }
}

/// On the driver's thread. A layer at a time, so that others have their turn in between.
void KvReceiver::State::verify_from(Rank& rank, uint32_t index,
                                    std::shared_ptr<const Delivery> delivery, uint32_t layer) {
  Result<void> verdict;
  while (true) {
    verdict = rank.side.verify(*delivery, layer);
    if (!verdict.ok() || ++layer == delivery->plan->layers()) break;
    const auto given =
        rank.commands.submit_more([this, &rank, index, delivery, layer](transfer::TransferEngine&) {
          verify_from(rank, index, delivery, layer);
        });
    if (given.ok()) return;
  }
  post_verdict(delivery->key, index, verdict);
}

void KvReceiver::State::post_verdict(handoff::Key key, uint32_t rank, Result<void> verdict) {
  box.post(
      [this, key, rank, verdict = std::move(verdict)] { events.on_verdict(key, rank, verdict); });
}

}  // namespace tandem::cluster
