#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/delivery/data_rank.h"
#include "cluster/delivery/link_offer.h"
#include "cluster/handoff/key.h"
#include "io/executor.h"
#include "kv/transfer_plan.h"

namespace tandem::cluster {

/// What a KvReceiver found out. Called on the owner's thread, never from within its calls.
class KvReceiverEvents {
 public:
  virtual ~KvReceiverEvents() = default;
  /// All writes that arm() asked for are here.
  virtual void on_arrived(handoff::Immediate immediate, uint32_t rank) = 0;
  virtual void on_verdict(handoff::Key key, uint32_t rank, Result<void> verdict) = 0;
  /// After fence(): no write through the link's grants can change a byte or be counted any more.
  virtual void on_fenced(handoff::LinkId link) = 0;
};

/// A decode group's end of the data plane: opens its K and V for each prefill worker, counts what
/// arrives and proves it. One transfer engine per rank; calls here become commands to them, and
/// what they find is posted back. Owner's thread only.
class KvReceiver {
 public:
  /// `ranks` are the group's, in its order, and their `sidecars` equally long. `executor` is the
  /// owner's; it and `events` outlive this.
  KvReceiver(kv::KvLayout layout, std::vector<DataRank> ranks, io::Executor& executor,
             KvReceiverEvents& events);
  ~KvReceiver();

  const kv::KvLayout& layout() const;
  /// False: a lost peer's writes end only with its process.
  bool can_fence() const;

  // Links.
  /// Grants the memory to a source that layout() matches; `done` gets what to send to it. Between
  /// here and fence() or forget() the link is open, unless `done` says otherwise; after those it is
  /// not called any more.
  void open_link(handoff::LinkId link, std::string name, const LinkSource& source,
                 std::function<void(Result<LinkOffer>)> done);
  /// Takes the grants back. on_fenced follows if can_fence().
  void fence(handoff::LinkId link);
  /// The same for a link whose peer's process is gone or that nothing was sent on: no event.
  void forget(handoff::LinkId link);

  // Hand-offs.
  /// Counts from 0; `armed` once it does, so that the writer may be told. An error is one of ours:
  /// nothing is counted.
  void arm(handoff::Immediate immediate, uint32_t rank, uint32_t writes,
           std::function<void(Result<void>)> armed);
  /// Counts it no more. After it neither `armed` nor on_arrived comes for this immediate, not even
  /// one on its way. Nothing happens if it is not counted.
  void drop(handoff::Immediate immediate, uint32_t rank);

  /// What arrived where; the plan's target is layout().
  struct Delivery {
    handoff::Key key;
    std::shared_ptr<const kv::TransferPlan> plan;
    std::vector<PageId> pages;   ///< [slices], of the plan's target
    uint64_t sidecar_first = 0;  ///< the same on every rank
  };
  /// Compares pages with sidecars on every rank that has a link in the plan; on_verdict for each of
  /// all ranks. The pages must stay held until all verdicts are here.
  void verify(Delivery delivery);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::cluster
