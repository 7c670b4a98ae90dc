#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tandem::kv {

/// How bytes lie in a page. Another number means another order of bytes, not another size.
///   1   [page][kv_head][token][head_dim]
inline constexpr uint32_t kKvFormat = 1;

/// The type of one number of K or V. The values cross the wire.
enum class KvElement : uint8_t { kF32 = 1, kBF16 = 2 };
uint32_t element_bytes(KvElement element);

/// KV heads [first, end) of the whole model.
struct HeadRange {
  uint32_t first = 0;
  uint32_t end = 0;
  uint32_t count() const { return end - first; }
  bool operator==(const HeadRange&) const = default;
};

/// What the KV pools of one tensor-parallel group look like, so that another group can write into
/// them or read what they wrote. Plain fields: a handshake carries them. Per rank and layer there
/// are two pools, K and V, each `[pages_total][heads of the rank][page_tokens][head_dim]`, and a
/// page has the same number in all of them.
struct KvLayout {
  uint32_t format = kKvFormat;
  KvElement element = KvElement::kBF16;
  uint32_t layers = 0;      ///< with K and V, the multi-token-prediction layers (the last) included
  uint32_t mtp_layers = 0;  ///< of these, multi-token-prediction
  uint32_t kv_heads = 0;    ///< of the whole model
  uint32_t head_dim = 0;
  uint32_t page_tokens = 0;
  uint32_t pages_total = 0;
  std::vector<HeadRange> rank_heads;  ///< per tensor-parallel rank; equal ranges are copies

  /// Heads shared evenly, or copied evenly when there are more ranks than heads, neighbours first:
  /// what the model's own sharding does. One number must be a multiple of the other.
  static std::vector<HeadRange> even_heads(uint32_t kv_heads, uint32_t ranks_count);

  uint32_t ranks_count() const { return static_cast<uint32_t>(rank_heads.size()); }
  uint64_t token_bytes() const {
    return uint64_t{head_dim} * element_bytes(element);
  }  ///< a head's
  uint64_t page_bytes(uint32_t rank) const {
    return rank_heads[rank].count() * uint64_t{page_tokens} * token_bytes();
  }
  uint64_t pool_bytes(uint32_t rank) const { return pages_total * page_bytes(rank); }
  bool operator==(const KvLayout&) const = default;
};

/// Whether the fields of a layout make sense by themselves: within limits, every head on some rank,
/// 64 bits enough for every offset. kInvalidArgument names the field. A layout that a peer sent
/// must pass here before it is used.
Result<void> validate(const KvLayout& layout);

/// One field in which two layouts differ although they must not.
struct LayoutMismatch {
  std::string field;
  std::string source;
  std::string target;
};

/// All fields that must match and do not. Page sizes, pages and ranks are free on either side.
std::vector<LayoutMismatch> layout_mismatches(const KvLayout& source, const KvLayout& target);

/// kFailedPrecondition with every mismatching field and both values. The handshake's refusal.
Result<void> check_match(const KvLayout& source, const KvLayout& target);

}  // namespace tandem::kv
