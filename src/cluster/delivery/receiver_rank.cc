#include "cluster/delivery/receiver_rank.h"

#include <utility>

#include "base/check.h"

namespace tandem::cluster {

Result<LinkOffer::Rank> ReceiverRank::open(transfer::TransferEngine& engine, handoff::LinkId link,
                                           const std::string& name, const LinkSource& source) {
  std::vector<Writer>& writers = links_[link.value];
  LinkOffer::Rank offer{.address = data_.address};
  for (size_t i = 0; i < source.ranks.size(); ++i) {
    const transfer::PeerId peer =
        TANDEM_TRY(engine.add_peer(name + " rank " + std::to_string(i), source.ranks[i]));
    Writer& writer = writers.emplace_back(Writer{.peer = peer});
    LinkOffer::Regions& regions = offer.regions.emplace_back();
    for (const auto& [memory, descriptor] : {std::pair(data_.memory, &regions.memory),
                                             std::pair(data_.sidecar_memory, &regions.sidecars)}) {
      transfer::Grant grant = TANDEM_TRY(engine.grant(memory, peer));
      writer.grants.push_back(grant.id);
      *descriptor = std::move(grant.descriptor);
    }
  }
  return offer;
}

void ReceiverRank::close(transfer::TransferEngine& engine, handoff::LinkId link,
                         std::function<void(bool is_fenced)> then) {
  auto found = links_.extract(link.value);
  if (found.empty()) return then(true);  // nothing was ever granted
  Closing& closing = closing_[link.value];
  closing.writers = std::move(found.mapped());
  closing.then = std::move(then);
  closing.grants_left = 1;  // until all are asked to close
  for (const Writer& writer : closing.writers) {
    for (const transfer::GrantId grant : writer.grants) {
      ++closing.grants_left;
      engine.revoke(grant,
                    [this, &engine, link](bool is_fenced) { closed(engine, link, is_fenced); });
    }
  }
  closed(engine, link, true);
}

void ReceiverRank::closed(transfer::TransferEngine& engine, handoff::LinkId link, bool is_fenced) {
  Closing& closing = closing_.at(link.value);
  closing.is_fenced &= is_fenced;
  if (--closing.grants_left > 0) return;
  for (const Writer& writer : closing.writers) engine.close_peer(writer.peer);
  const auto over = closing_.extract(link.value);
  over.mapped().then(over.mapped().is_fenced);
}

Result<void> ReceiverRank::verify(const KvReceiver::Delivery& delivery, uint32_t layer) {
  const auto links = delivery.plan->links();
  for (uint32_t link = 0; link < links.size(); ++link) {
    if (links[link].target_rank != rank_) continue;
    TANDEM_TRY(verify_pool(delivery, link, layer, false));
    TANDEM_TRY(verify_pool(delivery, link, layer, true));
  }
  return {};
}

Result<void> ReceiverRank::verify_pool(const KvReceiver::Delivery& delivery, uint32_t link,
                                       uint32_t layer, bool is_value) {
  const kv::TransferPlan& plan = *delivery.plan;
  const kv::PlanLink& from = plan.links()[link];
  digests_.resize(plan.slices_count());
  TANDEM_TRY(data_.kv->digest({.layer = layer,
                               .is_value = is_value,
                               .pages = delivery.pages,
                               .first_head = from.target_head,
                               .heads_count = from.heads.count(),
                               .tokens = plan.tokens(),
                               .slice_tokens = layout_.page_tokens},
                              digests_));
  const uint64_t first = delivery.sidecar_first + kv::SidecarMap(plan).block_first(link, layer) +
                         (is_value ? plan.slices_count() : 0);
  for (uint32_t slice = 0; slice < plan.slices_count(); ++slice) {
    TANDEM_TRY(kv::check_record(
        data_.sidecars[first + slice],
        {.epoch = delivery.key.epoch,
         .digest = digests_[slice],
         .tokens = plan.slice_tokens(slice).count()},
        {.source_rank = from.source_rank, .layer = layer, .is_value = is_value, .slice = slice}));
  }
  return {};
}

}  // namespace tandem::cluster
