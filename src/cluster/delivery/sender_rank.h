#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cluster/delivery/data_rank.h"
#include "cluster/delivery/kv_sender.h"
#include "cluster/delivery/link_offer.h"

namespace tandem::cluster {

/// How all writes of a hand-off that a rank had taken on ended.
struct SenderRankEnd {
  handoff::LinkedKey handoff;
  uint32_t writes = 0;
  std::optional<Error> error;  ///< none: delivered, or cancelled and not landing any more
  bool is_link_broken = false;
};

/// One rank of a KvSender, as its driver's thread sees it: a transfer for each hand-off, and what
/// waits for room in the engine. Of that thread.
class SenderRank {
 public:
  using Delivery = KvSender::Delivery;
  SenderRank(const kv::KvLayout& layout, uint32_t rank, DataRank& data,
             std::function<void(SenderRankEnd)> on_end)
      : layout_(layout), rank_(rank), data_(data), on_end_(std::move(on_end)) {}

  /// After an error the link still needs its close().
  Result<void> open(transfer::TransferEngine& engine, const LinkOffer& offer);
  /// Its hand-offs are ended.
  void close(transfer::TransferEngine& engine, handoff::LinkId link);

  /// Slices of a layer, in the order of submission.
  struct Portion {
    handoff::LinkedKey handoff;
    std::shared_ptr<const Delivery> delivery;
    std::shared_ptr<const std::vector<PageId>> pages;  ///< from position 0 on
    uint64_t staging_first = 0;  ///< the hand-off's room in this rank's sidecars
    uint32_t layer = 0;
    uint32_t first_slice = 0;
    uint32_t end_slice = 0;
    bool is_last = false;  ///< the layer's records follow
    uint32_t writes = 0;   ///< what all of that is
  };
  void take(transfer::TransferEngine& engine, Portion portion);
  void stop(transfer::TransferEngine& engine, handoff::LinkedKey handoff);
  /// All that was taken on has ended.
  void forget(handoff::LinkedKey handoff) { sendings_.erase(handoff); }

 private:
  struct Target {
    transfer::PeerId peer;
    std::optional<transfer::TargetId> memory;
    std::optional<transfer::TargetId> sidecars;
    uint64_t pool_bytes = 0;
  };
  struct Link {
    std::vector<Target> targets;  // [target ranks]
    uint32_t page_tokens = 0;
  };
  struct Sending {
    transfer::TransferId transfer;
    uint64_t writes_taken = 0;
    uint64_t writes_left = 0;    // of the plan, not yet with the engine
    std::optional<Error> error;  // ours, or how the transfer ended
    bool is_stopped = false;
    bool is_over = false;
  };
  /// A portion and what is next of it: of a plan's link, K, V or the records, from a slice on.
  enum class Part : uint8_t { kKeys, kValues, kRecords };
  struct Waiting {
    Portion portion;
    uint32_t link = 0;
    Part part = Part::kKeys;
    uint32_t slice = 0;
    uint32_t writes_left = 0;
  };
  /// What one call of the engine takes.
  struct Batch {
    transfer::WritePath path;
    std::vector<transfer::WriteRange> ranges;
    uint32_t end_slice = 0;
  };

  Sending& begin(transfer::TransferEngine& engine, const Portion& portion);
  bool is_sole_writer(const kv::TransferPlan& plan) const;
  Result<void> digest(const Portion& portion);
  uint64_t staging_of(const Portion& portion, uint32_t link) const;
  void write_waiting(transfer::TransferEngine& engine);
  bool skip_to_own(Waiting& waiting) const;
  Batch batch_of(const Waiting& waiting) const;
  Batch records_of(const Waiting& waiting) const;
  static void advance(Waiting& waiting, const Batch& batch);
  void fail(transfer::TransferEngine& engine, Sending& sending, const Error& error);
  void ended(transfer::TransferEngine& engine, handoff::LinkedKey handoff,
             const transfer::TransferEnd& end);

  const kv::KvLayout& layout_;
  const uint32_t rank_;
  DataRank& data_;
  const std::function<void(SenderRankEnd)> on_end_;
  std::map<uint64_t, Link> links_;
  std::map<handoff::LinkedKey, Sending> sendings_;
  std::deque<Waiting> waiting_;
  bool waits_for_room_ = false;
};

}  // namespace tandem::cluster
