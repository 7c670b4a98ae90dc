#pragma once

#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

#include "io/process.h"
#include "transfer/libfabric/endpoint.h"
#include "transfer/rail.h"
#include "transfer/time_point.h"

namespace tandem::transfer {

/// One path of a rail.
struct LibfabricPeer {
  fi_addr_t address = FI_ADDR_UNSPEC;       ///< unspecified from its loss on
  std::vector<std::byte> name;              ///< the provider's
  std::string label;                        ///< for messages
  std::optional<io::ProcessWatch> process;  ///< of shm
  std::deque<uint32_t> waiting;             ///< posts for which the provider had no room yet
  uint32_t posts_under_way = 0;             ///< with the provider, abandoned ones too
  uint32_t posts_retired = 0;
  std::optional<TimePoint> connecting_since;
  std::optional<Error> loss;  ///< why the path is lost
  bool is_closing = false;
};

/// The peers of a rail and how they are named between processes: the provider's address, with the
/// process in front of it where only its end tells of a death (shm).
class LibfabricPeers {
 public:
  explicit LibfabricPeers(LibfabricEndpoint& endpoint) : endpoint_(endpoint) {}

  Result<std::vector<std::byte>> own_address() const;
  Result<RailPeerId> add(std::span<const std::byte> address);
  LibfabricPeer& at(RailPeerId id);
  void remove(RailPeerId id) { peers_.erase(id); }
  std::unordered_map<RailPeerId, LibfabricPeer>& all() { return peers_; }

 private:
  bool has_processes() const;

  LibfabricEndpoint& endpoint_;
  std::unordered_map<RailPeerId, LibfabricPeer> peers_;
  uint32_t next_id_ = 0;
};

}  // namespace tandem::transfer
