#include "cluster/delivery/data_rank.h"

#include <algorithm>
#include <utility>

namespace tandem::cluster {

Result<DataRank> open_data_rank(engine::KvRank& kv,
                                std::vector<std::unique_ptr<transfer::Rail>> rails,
                                const DataRankOptions& options) {
  if (options.sidecar_records == 0) {
    return make_error(Code::kInvalidArgument,
                      options.engine.name + ": there must be room for sidecar records");
  }
  DataRank rank{.kv = &kv, .sidecars = std::vector<kv::SidecarRecord>(options.sidecar_records)};
  rank.can_fence = std::ranges::all_of(rails, [](const auto& rail) { return rail->can_fence(); });
  auto engine = TANDEM_TRY(
      transfer::TransferEngine::create(options.engine, std::move(rails), options.clock, {}));
  const std::span<std::byte> memory = kv.memory();
  rank.memory = TANDEM_TRY(engine->add_memory({memory.data(), memory.size()}));
  const std::span<std::byte> sidecars = std::as_writable_bytes(std::span(rank.sidecars));
  rank.sidecar_memory = TANDEM_TRY(engine->add_memory({sidecars.data(), sidecars.size()}));
  rank.address = engine->address();
  rank.driver = TANDEM_TRY(options.drive(std::move(engine)));
  return rank;
}

}  // namespace tandem::cluster
