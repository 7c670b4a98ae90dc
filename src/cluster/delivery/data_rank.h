#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/kv_rank.h"
#include "kv/sidecar.h"
#include "transfer/driver.h"
#include "transfer/rail.h"
#include "transfer/transfer_engine.h"

namespace tandem::cluster {

/// One rank's place in the data plane: its K and V, room for sidecar records, and a transfer engine
/// that both are registered with and that serves nothing else.
struct DataRank {
  engine::KvRank* kv = nullptr;
  std::vector<kv::SidecarRecord> sidecars;  ///< never resized
  transfer::EngineAddress address;
  transfer::MemoryId memory;  ///< of kv->memory()
  transfer::MemoryId sidecar_memory;
  bool can_fence = true;  ///< all its rails can
  /// Destroyed first: it ends the engine, which uses the memory.
  std::unique_ptr<transfer::Driver> driver;
};

struct DataRankOptions {
  transfer::EngineOptions engine;
  uint64_t sidecar_records = 0;
  transfer::Clock clock;
  /// Takes the engine over; EngineDriver::start, or the simulator's.
  std::function<Result<std::unique_ptr<transfer::Driver>>(
      std::unique_ptr<transfer::TransferEngine>)>
      drive;
};

/// `kv` outlives the result.
Result<DataRank> open_data_rank(engine::KvRank& kv,
                                std::vector<std::unique_ptr<transfer::Rail>> rails,
                                const DataRankOptions& options);

}  // namespace tandem::cluster
