#include "transfer/libfabric/peers.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "io/host.h"

namespace tandem::transfer {

bool LibfabricPeers::has_processes() const {
  return std::string_view(endpoint_.info().fabric_attr->prov_name) == "shm";
}

Result<std::vector<std::byte>> LibfabricPeers::own_address() const {
  std::vector<std::byte> address;
  if (has_processes()) {
    const int process = io::process_id();
    address.resize(sizeof(process));
    std::memcpy(address.data(), &process, sizeof(process));
  }
  const std::vector<std::byte> name = TANDEM_TRY(endpoint_.name());
  address.insert(address.end(), name.begin(), name.end());
  return address;
}

Result<RailPeerId> LibfabricPeers::add(std::span<const std::byte> address) {
  LibfabricPeer peer;
  if (has_processes()) {
    int process = 0;
    if (address.size() < sizeof(process)) {
      return make_error(Code::kInvalidArgument, "an address of shm starts with a process");
    }
    std::memcpy(&process, address.data(), sizeof(process));
    address = address.subspan(sizeof(process));
    auto watch = io::ProcessWatch::open(process);
    if (!watch.ok() && watch.error().code != Code::kNotFound) return watch.error();
    if (watch.ok() && !watch->has_ended()) {
      peer.process.emplace(std::move(*watch));
    } else {
      // Born lost, like any peer that cannot be reached.
      peer.loss = make_error(Code::kUnavailable, fmt::format("process {} is gone", process));
    }
  }
  if (!peer.loss.has_value()) peer.address = TANDEM_TRY(endpoint_.add_peer(address));
  peer.name.assign(address.begin(), address.end());
  peer.label = endpoint_.describe(address);
  const RailPeerId id{next_id_++};
  peers_.emplace(id, std::move(peer));
  return id;
}

LibfabricPeer& LibfabricPeers::at(RailPeerId id) {
  const auto found = peers_.find(id);
  TANDEM_CHECK(found != peers_.end(), "a peer is used that does not exist");
  return found->second;
}

}  // namespace tandem::transfer
