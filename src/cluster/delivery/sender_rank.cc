#include "cluster/delivery/sender_rank.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem::cluster {
namespace {

constexpr uint64_t kRecordBytes = sizeof(kv::SidecarRecord);

// Writes that are handed to the engine at once: so many that a call of it does not count, so few
// that they are made without a pause that others would notice.
constexpr size_t kBatchWrites = 256;

Result<void> check_bytes(const transfer::RegionDescriptor& region, uint64_t bytes) {
  if (region.bytes == bytes) return {};
  return make_error(Code::kInvalidArgument, "the target offers " + std::to_string(region.bytes) +
                                                " bytes for K and V; its layout needs " +
                                                std::to_string(bytes));
}

}  // namespace

Result<void> SenderRank::open(transfer::TransferEngine& engine, const LinkOffer& offer) {
  Link& link = links_[offer.link.value];
  link.page_tokens = offer.layout.page_tokens;
  for (uint32_t rank = 0; rank < offer.ranks.size(); ++rank) {
    const LinkOffer::Rank& offered = offer.ranks[rank];
    const LinkOffer::Regions& regions = offered.regions[rank_];
    const uint64_t pool_bytes = offer.layout.pool_bytes(rank);
    TANDEM_TRY(check_bytes(regions.memory, 2 * layout_.layers * pool_bytes));
    const transfer::PeerId peer =
        TANDEM_TRY(engine.add_peer(offer.name + " rank " + std::to_string(rank), offered.address));
    Target& target = link.targets.emplace_back(Target{.peer = peer, .pool_bytes = pool_bytes});
    target.memory = TANDEM_TRY(engine.add_target(peer, regions.memory));
    target.sidecars = TANDEM_TRY(engine.add_target(peer, regions.sidecars));
  }
  return {};
}

void SenderRank::close(transfer::TransferEngine& engine, handoff::LinkId link) {
  const auto found = links_.extract(link.value);
  if (found.empty()) return;
  for (const Target& target : found.mapped().targets) {
    for (const auto& region : {target.memory, target.sidecars}) {
      if (!region) continue;
      const auto removed = engine.remove_target(*region);
      TANDEM_CHECK(removed.ok(), "no transfer uses a link whose hand-offs are ended");
    }
    engine.close_peer(target.peer);
  }
}

bool SenderRank::is_sole_writer(const kv::TransferPlan& plan) const {
  const auto links = plan.links();
  return std::ranges::all_of(links, [&](const kv::PlanLink& other) {
    return other.source_rank == rank_ || std::ranges::none_of(links, [&](const auto& own) {
             return own.source_rank == rank_ && own.target_rank == other.target_rank;
           });
  });
}

SenderRank::Sending& SenderRank::begin(transfer::TransferEngine& engine, const Portion& portion) {
  const handoff::LinkedKey handoff = portion.handoff;
  const auto [found, is_new] = sendings_.try_emplace(handoff);
  Sending& sending = found->second;
  if (!is_new) return sending;
  const kv::TransferPlan& plan = *portion.delivery->plan;
  for (const kv::PlanLink& link : plan.links()) {
    if (link.source_rank != rank_) continue;
    sending.writes_left += plan.layers() * (2 * plan.copies_count(link) + 1);
  }
  const auto transfer = engine.begin(
      {.arrival = transfer::arrival_of(handoff::immediate_of(handoff.key).value),
       .is_sole_writer = is_sole_writer(plan),
       .on_end = [this, &engine, handoff](const auto& end) { ended(engine, handoff, end); }});
  if (transfer.ok()) {
    sending.transfer = *transfer;
  } else {
    sending.is_over = true;
    sending.error = transfer.error();
  }
  return sending;
}

void SenderRank::take(transfer::TransferEngine& engine, Portion portion) {
  Sending& sending = begin(engine, portion);
  if (sending.is_over) {
    TANDEM_CHECK(sending.error, "nothing is submitted behind all that was delivered");
    return on_end_({portion.handoff, portion.writes, sending.error});
  }
  sending.writes_taken += portion.writes;
  if (sending.is_stopped || sending.error) return;  // the transfer's end tells of it
  if (const auto digested = digest(portion); !digested.ok()) {
    return fail(engine, sending, digested.error());
  }
  const uint32_t first_slice = portion.first_slice;
  const uint32_t writes = portion.writes;
  waiting_.push_back({.portion = std::move(portion), .slice = first_slice, .writes_left = writes});
  write_waiting(engine);
}

/// Where the records of the portion's layer of a plan's link are made: K first, as they arrive.
uint64_t SenderRank::staging_of(const Portion& portion, uint32_t link) const {
  const kv::TransferPlan& plan = *portion.delivery->plan;
  uint64_t before = 0;
  for (uint32_t i = 0; i < link; ++i) before += plan.links()[i].source_rank == rank_;
  return portion.staging_first +
         (before * plan.layers() + portion.layer) * kv::SidecarMap(plan).block_records();
}

/// Makes the records of its slices while their bytes are fresh.
Result<void> SenderRank::digest(const Portion& portion) {
  if (portion.first_slice == portion.end_slice) return {};
  const kv::TransferPlan& plan = *portion.delivery->plan;
  const uint32_t slices = portion.end_slice - portion.first_slice;
  const kv::TokenRange tokens{plan.slice_tokens(portion.first_slice).first,
                              plan.slice_tokens(portion.end_slice - 1).end};
  std::vector<uint64_t> digests(slices);
  for (uint32_t link = 0; link < plan.links().size(); ++link) {
    const kv::PlanLink& to = plan.links()[link];
    if (to.source_rank != rank_) continue;
    for (const bool is_value : {false, true}) {
      TANDEM_TRY(data_.kv->digest(
          {.layer = portion.layer,
           .is_value = is_value,
           .pages = std::span(*portion.pages).subspan(tokens.first / layout_.page_tokens),
           .first_head = to.source_head,
           .heads_count = to.heads.count(),
           .tokens = tokens,
           .slice_tokens = links_.at(portion.handoff.link.value).page_tokens},
          digests));
      const uint64_t first = staging_of(portion, link) + (is_value ? plan.slices_count() : 0);
      for (uint32_t i = 0; i < slices; ++i) {
        const uint32_t slice = portion.first_slice + i;
        data_.sidecars[first + slice] = {.epoch = portion.handoff.key.epoch,
                                         .digest = digests[i],
                                         .tokens = plan.slice_tokens(slice).count()};
      }
    }
  }
  return {};
}

void SenderRank::write_waiting(transfer::TransferEngine& engine) {
  while (!waiting_.empty() && !waits_for_room_) {
    Waiting& waiting = waiting_.front();
    Sending& sending = sendings_.at(waiting.portion.handoff);
    if (!skip_to_own(waiting)) {
      TANDEM_CHECK(waiting.writes_left == 0, "a portion is as many writes as was promised");
      waiting_.pop_front();
      if (sending.writes_left > 0) continue;
      const auto finished = engine.finish(sending.transfer);
      TANDEM_CHECK(finished.ok(), "a transfer that took all writes can be finished");
      continue;
    }
    const Batch batch = batch_of(waiting);
    const auto writes = static_cast<uint32_t>(batch.ranges.size());
    const auto written = engine.write(sending.transfer, batch.path, batch.ranges);
    if (written.ok()) {
      TANDEM_CHECK(writes <= waiting.writes_left, "no more writes than was promised");
      waiting.writes_left -= writes;
      sending.writes_left -= writes;
      advance(waiting, batch);
      continue;
    }
    Result<void> waits = written;
    if (written.error().code == Code::kResourceExhausted) {
      waits = engine.wait_for_room(writes, [this, &engine] {
        waits_for_room_ = false;
        write_waiting(engine);
      });
      waits_for_room_ = waits.ok();
    }
    if (waits.ok()) return;
    fail(engine, sending, waits.error());  // or it has failed already; nothing happens then
    waiting_.pop_front();
  }
}

/// To what is next in the order links, K, V, records; false when nothing is.
bool SenderRank::skip_to_own(Waiting& waiting) const {
  const Portion& portion = waiting.portion;
  const auto links = portion.delivery->plan->links();
  for (; waiting.link < links.size(); ++waiting.link, waiting.part = Part::kKeys) {
    if (links[waiting.link].source_rank != rank_) continue;
    if (portion.first_slice == portion.end_slice) waiting.part = Part::kRecords;
    if (waiting.part != Part::kRecords || portion.is_last) return true;
  }
  return false;
}

SenderRank::Batch SenderRank::batch_of(const Waiting& waiting) const {
  if (waiting.part == Part::kRecords) return records_of(waiting);
  const Portion& portion = waiting.portion;
  const kv::TransferPlan& plan = *portion.delivery->plan;
  const kv::PlanLink& link = plan.links()[waiting.link];
  const Target& target = links_.at(portion.handoff.link.value).targets[link.target_rank];
  const uint64_t pool = 2 * portion.layer + (waiting.part == Part::kValues ? 1 : 0);
  const uint64_t source_base = pool * layout_.pool_bytes(rank_);
  const uint64_t target_base = pool * target.pool_bytes;
  const kv::TransferPlan::Pages pages{
      .source = std::span(*portion.pages).subspan(plan.source_pages().first),
      .target = portion.delivery->target_pages};
  Batch batch{.path = {data_.memory, *target.memory}, .end_slice = waiting.slice};
  while (batch.end_slice < portion.end_slice && batch.ranges.size() < kBatchWrites) {
    plan.for_each_copy(link, batch.end_slice++, pages, [&](const kv::PageCopy& copy) {
      batch.ranges.push_back({.source_offset = source_base + copy.source_offset,
                              .target_offset = target_base + copy.target_offset,
                              .bytes = copy.bytes});
    });
  }
  return batch;
}

SenderRank::Batch SenderRank::records_of(const Waiting& waiting) const {
  const Portion& portion = waiting.portion;
  const kv::TransferPlan& plan = *portion.delivery->plan;
  const kv::PlanLink& link = plan.links()[waiting.link];
  const Target& target = links_.at(portion.handoff.link.value).targets[link.target_rank];
  const kv::SidecarMap map(plan);
  const uint64_t first =
      portion.delivery->sidecar_first + map.block_first(waiting.link, portion.layer);
  return {.path = {data_.sidecar_memory, *target.sidecars},
          .ranges = {{.source_offset = staging_of(portion, waiting.link) * kRecordBytes,
                      .target_offset = first * kRecordBytes,
                      .bytes = map.block_records() * kRecordBytes}}};
}

void SenderRank::advance(Waiting& waiting, const Batch& batch) {
  switch (waiting.part) {
    case Part::kKeys:
    case Part::kValues:
      waiting.slice = batch.end_slice;
      if (waiting.slice < waiting.portion.end_slice) return;
      waiting.slice = waiting.portion.first_slice;
      waiting.part = waiting.part == Part::kKeys ? Part::kValues : Part::kRecords;
      return;
    case Part::kRecords:
      ++waiting.link;
      waiting.part = Part::kKeys;
  }
}

void SenderRank::stop(transfer::TransferEngine& engine, handoff::LinkedKey handoff) {
  const auto found = sendings_.find(handoff);
  if (found == sendings_.end() || found->second.is_over) return;
  found->second.is_stopped = true;
  engine.cancel(found->second.transfer);
}

void SenderRank::fail(transfer::TransferEngine& engine, Sending& sending, const Error& error) {
  if (sending.is_stopped || sending.is_over || sending.error) return;
  // A transfer that failed by itself takes no writes; its end says why.
  if (error.code != Code::kFailedPrecondition) sending.error = error;
  engine.cancel(sending.transfer);
}

void SenderRank::ended(transfer::TransferEngine& engine, handoff::LinkedKey handoff,
                       const transfer::TransferEnd& end) {
  Sending& sending = sendings_.at(handoff);
  sending.is_over = true;
  std::erase_if(waiting_, [&](const Waiting& each) { return each.portion.handoff == handoff; });
  SenderRankEnd told{handoff, static_cast<uint32_t>(sending.writes_taken)};
  if (!end.outcome.ok()) {
    const bool was_cancelled = end.is_settled && end.outcome.error().code == Code::kCancelled;
    if (!sending.error) sending.error = end.outcome.error();
    if (!was_cancelled || !sending.is_stopped) told.error = sending.error;
    const auto& targets = links_.at(handoff.link.value).targets;
    told.is_link_broken = !end.is_settled || std::ranges::any_of(targets, [&](const Target& each) {
      return engine.open_paths(each.peer) == 0;
    });
  }
  on_end_(std::move(told));
}

}  // namespace tandem::cluster
