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
#include "cluster/handoff/prefiller.h"
#include "io/executor.h"
#include "kv/transfer_plan.h"

namespace tandem::cluster {

/// How the writes of a hand-off ended, rank by rank. On the owner's thread, never from within a
/// call of KvSender. The writes that all of it name are as many as submit() returned.
class KvSenderEvents {
 public:
  virtual ~KvSenderEvents() = default;
  /// Delivered, or cancelled and surely not landing any more.
  virtual void on_delivered(handoff::LinkedKey handoff, uint32_t writes) = 0;
  /// Not all were delivered, and none will land any more.
  virtual void on_write_failed(handoff::LinkedKey handoff, uint32_t writes, Error error) = 0;
  /// Some may land until the target has closed its grant, or a rank of it cannot be reached any
  /// more: the link is of no use, and its target must hear of that. Told once; the hand-off's
  /// writes end in on_write_failed right after. What is begun or submitted later is an error.
  virtual void on_link_broken(handoff::LinkId link, Error error) = 0;
};

/// A prefill worker's end of the data plane: writes slices of its ranks' pages, with digests, into
/// the memory of decode groups. One transfer engine per rank; calls here become commands to them,
/// and what they find is posted back. Owner's thread only.
class KvSender {
 public:
  /// `ranks` are the worker's, in its order. `executor` is the owner's; it and `events` outlive
  /// this.
  KvSender(kv::KvLayout layout, std::vector<DataRank> ranks, io::Executor& executor,
           KvSenderEvents& events);
  ~KvSender();

  /// What a decode worker needs to know of this one.
  const LinkSource& source() const;

  // Links.
  /// `done` says whether writes can be submitted; after an error the link is not open. The offer's
  /// layout is valid and matches. Not called after close_link().
  void open_link(LinkOffer offer, std::function<void(Result<void>)> done);
  /// Its hand-offs are ended by then.
  void close_link(handoff::LinkId link);

  // Hand-offs.
  struct Delivery {
    handoff::LinkedKey handoff;
    std::shared_ptr<const kv::TransferPlan> plan;  ///< from the own layout to the link's
    std::vector<PageId> target_pages;              ///< [slices]
    uint64_t sidecar_first = 0;
  };
  /// An error is of the link, of places that the target named, or of more sidecar records than a
  /// source rank has room for: nothing has begun.
  Result<void> begin(Delivery delivery);
  /// The pages that hold positions from 0 on; grows as they are computed. Before submit() of what
  /// lies in them.
  void set_pages(handoff::LinkedKey handoff, std::vector<PageId> pages);
  /// Writes the slices, and with the last token the layer's sidecar records, of every link of this
  /// source rank. Returns how many counted writes that is; each ends in an event. They may wait
  /// for other hand-offs, whose sidecar records take the room, to end.
  handoff::PrefillerPorts::Submitted submit(handoff::LinkedKey handoff,
                                            const handoff::PrefillerPorts::Slices& slices);
  /// Submits nothing more; what is under way ends as it can. More submit() calls write nothing.
  void stop(handoff::LinkedKey handoff);
  /// All its writes have ended, and no more follow.
  void end(handoff::LinkedKey handoff);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::cluster
