#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "base/result.h"
#include "kv/kv_layout.h"
#include "kv/transfer_plan.h"

namespace tandem::kv {

/// What the source says of one slice of one (layer, K|V): the proof beside the count (contracts:
/// hand-off). Written by the source into the target's memory as it is here; both are little-endian.
struct SidecarRecord {
  uint64_t epoch = 0;   ///< of the hand-off; never 0
  uint64_t digest = 0;  ///< ops::kv_digest of the slice
  uint32_t tokens = 0;  ///< valid ones in the slice
  uint32_t reserved = 0;
  bool operator==(const SidecarRecord&) const = default;
};
static_assert(sizeof(SidecarRecord) == 24 && alignof(SidecarRecord) == 8);
static_assert(std::is_trivially_copyable_v<SidecarRecord>);

/// Which record: for errors.
struct SidecarPlace {
  uint32_t source_rank = 0;
  uint32_t layer = 0;
  bool is_value = false;  ///< of V; else of K
  uint32_t slice = 0;
};

/// What the target found, `arrived`, against what it expects: its own epoch, the plan's tokens and
/// the digest of the bytes that lie in its page. kDataLoss says which part differs and where: this
/// transfer failed, and its pages must not be read.
Result<void> check_record(const SidecarRecord& arrived, const SidecarRecord& expected,
                          const SidecarPlace& place);

/// Records that a target rank may need at a time: of each page, layer and K|V one per link, of
/// which it has at most as many as heads.
uint64_t sidecar_records_max(const KvLayout& target, uint32_t rank);

/// Where the records of a target rank lie: [links of the rank][layer][K|V][slice], dense, so that
/// those of a (link, layer) are one write.
class SidecarMap {
 public:
  /// `plan` must outlive this.
  explicit SidecarMap(const TransferPlan& plan) : plan_(plan) {}

  /// Records of a (link, layer), K first.
  uint64_t block_records() const { return 2 * uint64_t{plan_.slices_count()}; }
  /// The first of them, in records from the start of the target rank's. `link` is an index into
  /// plan.links().
  uint64_t block_first(uint32_t link, uint32_t layer) const;
  uint64_t records_count(uint32_t target_rank) const;

 private:
  const TransferPlan& plan_;
};

}  // namespace tandem::kv
