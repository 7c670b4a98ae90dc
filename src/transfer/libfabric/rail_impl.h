#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transfer/libfabric/mailbox.h"
#include "transfer/libfabric/peers.h"
#include "transfer/libfabric/posts.h"
#include "transfer/libfabric/rail.h"
#include "transfer/libfabric/regions.h"
#include "transfer/rail_event.h"

namespace tandem::transfer {

/// A rail over one endpoint of libfabric. rail.cc has what its owner calls, rail_poll.cc what moves
/// it forward.
///
/// When a path is lost, its connection is cut at once where the provider can do that. All that was
/// under way then ends with entries in the completion queue; the path is settled when that queue is
/// next seen empty. Regions are closed the same way, so no immediate follows the event.
class LibfabricRail final : public Rail {
 public:
  static Result<std::unique_ptr<Rail>> open(const LibfabricRailOptions& options);

  const std::string& name() const override { return name_; }
  const RailLimits& limits() const override { return limits_; }
  bool can_fence() const override { return endpoint_->cuts_connections(); }
  std::vector<std::byte> address() const override { return address_; }

  Result<RailPeerId> add_peer(std::span<const std::byte> address) override;
  void close_peer(RailPeerId id) override;
  Result<Registration> register_memory(const MemoryBlock& memory, Access access) override;
  void set_writer(RailRegionId region, RailPeerId writer) override;
  void close_region(RailRegionId region) override;
  Post post_write(const RailWrite& write) override;
  Post post_message(RailPeerId id, std::span<const std::byte> bytes, uint64_t token) override;
  uint32_t poll(RailEvents& events, uint32_t events_max) override;
  int wait_descriptor() const override { return endpoint_->descriptor(); }
  bool may_sleep() override;

 private:
  using State = LibfabricPosts::State;

  LibfabricRail(const LibfabricRailOptions& options, std::unique_ptr<LibfabricEndpoint> endpoint,
                LibfabricPosts posts, LibfabricMailbox mailbox)
      : options_(options),
        endpoint_(std::move(endpoint)),
        peers_(*endpoint_),
        regions_(*endpoint_),
        posts_(std::move(posts)),
        mailbox_(std::move(mailbox)) {}

  Post submit_new(RailPeerId id, LibfabricPeer& peer, uint32_t index);
  Post refuse(const LibfabricPeer& peer, uint64_t token);
  ssize_t submit(LibfabricPeer& peer, std::span<const uint32_t> indices);
  void submit_waiting(RailPeerId id, LibfabricPeer& peer);
  void wait(LibfabricPeer& peer, uint32_t index);

  uint32_t read_completions(RailEvents& events, uint32_t events_max);
  /// At most `events_max` events; more of the same are told later.
  uint32_t handle(const fi_cq_data_entry& entry, RailEvents& events, uint32_t events_max);
  uint32_t handle_arrivals(uint64_t data, RailEvents& events, uint32_t events_max);
  uint32_t handle_end(uint32_t index, RailEvents& events, uint32_t events_max);
  void handle_error();
  void repost(const LibfabricContext& context);
  void watch();

  /// Takes a path out of service, so that its posts end.
  void lose(RailPeerId id, LibfabricPeer& peer, Error error);
  /// Ends the connection with whoever has this name.
  void cut(std::span<const std::byte> name);
  void settle();
  void settle_peer(RailPeerId id);
  void end(LibfabricPeer& peer, uint32_t index, RailOutcome outcome);
  void fail(Error error);
  Error path_error(const LibfabricPeer& peer, const char* phase, const std::string& what) const;
  void tell_ready(RailEvents& events, uint32_t events_max, uint32_t& told);

  LibfabricRailOptions options_;
  std::unique_ptr<LibfabricEndpoint> endpoint_;
  LibfabricPeers peers_;
  LibfabricRegions regions_;
  LibfabricPosts posts_;
  LibfabricMailbox mailbox_;
  std::string name_;
  RailLimits limits_;
  std::vector<std::byte> address_;

  std::deque<RailEvent> ready_;  // known and not yet told
  uint32_t waiting_count_ = 0;   // posts in the peers' waiting lists
  // What ends when the completion queue is next seen empty.
  std::vector<RailPeerId> settling_;
  std::vector<RailRegionId> closing_;
  TimePoint next_watch_;
  std::optional<Error> failure_;  ///< of the rail as a whole
};

}  // namespace tandem::transfer
