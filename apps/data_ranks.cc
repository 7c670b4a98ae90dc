#include "apps/data_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "kv/sidecar.h"
#include "transfer/engine_driver.h"
#include "transfer/libfabric/rail.h"

namespace tandem::apps {

Result<std::vector<cluster::DataRank>> open_data_ranks(const engine::RankSet::Group& group,
                                                       const transfer::LibfabricOptions& network,
                                                       WorkerTaps& taps) {
  uint64_t records = 0;
  for (uint32_t rank = 0; rank < group.layout.ranks_count(); ++rank) {
    records = std::max(records, kv::sidecar_records_max(group.layout, rank));
  }
  std::vector<cluster::DataRank> ranks;
  for (size_t i = 0; i < group.ranks.size(); ++i) {
    std::vector<std::unique_ptr<transfer::Rail>> rails;
    rails.push_back(
        TANDEM_TRY(taps.rail(TANDEM_TRY(transfer::create_libfabric_rail({.network = network})))));
    cluster::DataRankOptions options;
    const size_t number = static_cast<size_t>(group.index) * group.ranks.size() + i;
    options.engine.name = fmt::format("rank {}", number);
    options.sidecar_records = records;
    options.clock = std::chrono::steady_clock::now;
    options.drive = [number](std::unique_ptr<transfer::TransferEngine> engine)
        -> Result<std::unique_ptr<transfer::Driver>> {
      transfer::DriverOptions driver;
      driver.thread_name = fmt::format("transfer-{}", number);
      driver.commands_max = 1 << 16;
      return std::unique_ptr<transfer::Driver>(
          TANDEM_TRY(transfer::EngineDriver::start(std::move(engine), driver)));
    };
    ranks.push_back(
        TANDEM_TRY(cluster::open_data_rank(*group.ranks[i], std::move(rails), options)));
  }
  return ranks;
}

}  // namespace tandem::apps
