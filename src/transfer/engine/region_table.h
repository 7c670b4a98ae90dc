#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "transfer/engine/peer_table.h"
#include "transfer/engine/shared.h"

namespace tandem::transfer {

/// Own memory that writes may read from. `uses` are slices and writes that still name it.
struct Memory {
  MemoryBlock block;
  std::vector<RailRegionId> sources;  ///< by rail
  uint64_t uses = 0;
  uint32_t grants = 0;
};

/// A peer's memory.
struct Target {
  PeerId peer;
  RegionDescriptor descriptor;
  uint64_t uses = 0;
};

/// Own memory, what peers were given of it, and what peers gave us.
class RegionTable {
 public:
  explicit RegionTable(EngineShared& shared)
      : shared_(shared), keys_(shared.rails.size()), closing_(shared.rails.size()) {}

  Result<MemoryId> add_memory(const MemoryBlock& block);
  Result<void> remove_memory(MemoryId id);
  Memory* find_memory(MemoryId id);

  /// To a peer, or to whom it may concern (null).
  Result<Grant> grant(MemoryId memory, const Peer* writer);
  void revoke(GrantId id, std::function<void(bool is_fenced)> on_closed);

  /// The peer must have a key for each of its `rails_count` rails.
  Result<TargetId> add_target(PeerId peer, uint32_t rails_count, RegionDescriptor descriptor);
  Result<void> remove_target(TargetId id);
  Target* find_target(TargetId id);

  /// Whether the key is of a grant, open or not.
  bool has_key(uint32_t rail, uint64_t key) const { return keys_[rail].contains(key); }
  /// Closes the grant of this key on this one rail. True when it is closed, or of no grant (any
  /// more); else region_closed() follows.
  bool close_key(uint32_t rail, uint64_t key);
  /// The rail has closed it; the key of the registration, or 0 if it was none of a grant.
  uint64_t region_closed(uint32_t rail, RailRegionId id);

 private:
  struct RailGrant {
    enum class State { kOpen, kClosing, kClosed };
    Registration registration;
    State state = State::kOpen;
  };
  struct GrantRecord {
    MemoryId memory;
    std::vector<RailGrant> rails;
    bool is_revoked = false;
    std::function<void(bool)> on_closed;
  };
  Result<std::vector<Registration>> register_on_all(const MemoryBlock& block, Access access);
  void close(uint32_t rail, RailGrant& grant);
  void forget_if_closed(GrantId id);
  Error full_error(const char* what) const;

  EngineShared& shared_;
  uint64_t ids_made_ = 0;
  std::unordered_map<MemoryId, Memory> memories_;
  std::unordered_map<GrantId, GrantRecord> grants_;
  std::unordered_map<TargetId, Target> targets_;
  std::vector<std::unordered_map<uint64_t, GrantId>> keys_;     // by rail
  std::vector<std::unordered_map<uint32_t, GrantId>> closing_;  // by rail and RailRegionId
};

}  // namespace tandem::transfer
