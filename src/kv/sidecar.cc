#include "kv/sidecar.h"

#include <fmt/format.h>

namespace tandem::kv {

Result<void> check_record(const SidecarRecord& arrived, const SidecarRecord& expected,
                          const SidecarPlace& place) {
  const auto fails = [&](const std::string& what) {
    return make_error(
        Code::kDataLoss,
        fmt::format("kv transfer from rank {}: {} of layer {}, page {} of the hand-off: {}; the "
                    "transfer failed, send the request again",
                    place.source_rank, place.is_value ? "V" : "K", place.layer, place.slice, what));
  };
  if (arrived.epoch != expected.epoch) {
    return fails(
        fmt::format("its record is of epoch {} instead of {}", arrived.epoch, expected.epoch));
  }
  if (arrived.tokens != expected.tokens) {
    return fails(
        fmt::format("its record is of {} tokens instead of {}", arrived.tokens, expected.tokens));
  }
  if (arrived.digest != expected.digest) {
    return fails(fmt::format("the bytes have digest {:016x}, the source sent {:016x}",
                             expected.digest, arrived.digest));
  }
  return {};
}

uint64_t sidecar_records_max(const KvLayout& target, uint32_t rank) {
  return uint64_t{target.pages_total} * target.layers * 2 * target.rank_heads[rank].count();
}

uint64_t SidecarMap::block_first(uint32_t link, uint32_t layer) const {
  const auto links = plan_.links();
  TANDEM_CHECK(link < links.size() && layer < plan_.layers(), "a link and a layer of the plan");
  uint64_t before = 0;
  for (uint32_t i = 0; i < link; ++i) before += links[i].target_rank == links[link].target_rank;
  return (before * plan_.layers() + layer) * block_records();
}

uint64_t SidecarMap::records_count(uint32_t target_rank) const {
  uint64_t links = 0;
  for (const PlanLink& link : plan_.links()) links += link.target_rank == target_rank;
  return links * plan_.layers() * block_records();
}

}  // namespace tandem::kv
