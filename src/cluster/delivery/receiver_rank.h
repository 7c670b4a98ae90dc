#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/delivery/data_rank.h"
#include "cluster/delivery/kv_receiver.h"
#include "cluster/delivery/link_offer.h"

namespace tandem::cluster {

/// One rank of a KvReceiver, as its driver's thread sees it: the grants of links, and the proof of
/// pages. Of that thread.
class ReceiverRank {
 public:
  ReceiverRank(const kv::KvLayout& layout, uint32_t rank, const DataRank& data)
      : layout_(layout), rank_(rank), data_(data) {}

  /// After an error the link still needs its close().
  Result<LinkOffer::Rank> open(transfer::TransferEngine& engine, handoff::LinkId link,
                               const std::string& name, const LinkSource& source);
  /// Takes back all grants of a link, whole or not.
  void close(transfer::TransferEngine& engine, handoff::LinkId link,
             std::function<void(bool is_fenced)> then);
  /// Pages against records, of one layer.
  Result<void> verify(const KvReceiver::Delivery& delivery, uint32_t layer);

 private:
  struct Writer {
    transfer::PeerId peer;
    std::vector<transfer::GrantId> grants;
  };
  struct Closing {
    size_t grants_left = 0;
    bool is_fenced = true;
    std::vector<Writer> writers;
    std::function<void(bool)> then;
  };
  void closed(transfer::TransferEngine& engine, handoff::LinkId link, bool is_fenced);
  Result<void> verify_pool(const KvReceiver::Delivery& delivery, uint32_t link, uint32_t layer,
                           bool is_value);

  const kv::KvLayout& layout_;
  const uint32_t rank_;
  const DataRank& data_;
  std::map<uint64_t, std::vector<Writer>> links_;
  std::map<uint64_t, Closing> closing_;
  std::vector<uint64_t> digests_;
};

}  // namespace tandem::cluster
