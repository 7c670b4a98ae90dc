#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/handoff/key.h"
#include "kv/kv_layout.h"
#include "transfer/wire.h"

namespace tandem::cluster {

/// What a prefill worker says of itself before a link: where its ranks write from.
struct LinkSource {
  kv::KvLayout layout;
  std::vector<transfer::EngineAddress> ranks;  ///< [source ranks]
};

/// A decode group's memory, opened for one prefill worker.
struct LinkOffer {
  handoff::LinkId link;
  std::string name;  ///< of the decode group, for messages: "d0 rank 2"
  kv::KvLayout layout;
  /// A grant names one writer, since over tcp a fence cuts that writer's connection; so each source
  /// rank gets keys of its own.
  struct Regions {
    transfer::RegionDescriptor memory;    ///< KvRank::memory
    transfer::RegionDescriptor sidecars;  ///< kv::SidecarRecord[]
  };
  struct Rank {
    transfer::EngineAddress address;
    std::vector<Regions> regions;  ///< [source ranks]
  };
  std::vector<Rank> ranks;  ///< [target ranks]
};

}  // namespace tandem::cluster
