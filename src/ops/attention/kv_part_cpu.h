#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/panel.h"
#include "ops/attention/attention.h"

namespace tandem::ops {

/// Keys and values of one head for one part of up to 256 tokens, laid out as panels: keys with
/// tokens as columns and head_dim as contraction, values with head_dim as columns and tokens as
/// contraction. Lives in a worker's scratch.
class KvPart {
 public:
  static constexpr int64_t kColumns = cpu::kPanelColumns;

  static size_t scratch_bytes(const KvPool& kv) {
    const Sizes s(kv);
    return static_cast<size_t>(s.key_panels * s.key_panel_bytes +
                               s.value_panels * s.value_panel_bytes);
  }
  KvPart(const KvPool& kv, std::byte* scratch)
      : kv_(kv),
        sizes_(kv),
        keys_(scratch),
        values_(scratch + sizes_.key_panels * sizes_.key_panel_bytes) {}

  /// Lays out tokens [first, first + count) of the sequence with page table row `pages`.
  void load(const int32_t* pages, int64_t head, int64_t first, int64_t count) {
    if (kv_.k.dtype == DType::kF32) {
      load_f32(pages, head, first, count);
    } else {
      load_bf16(pages, head, first, count);
    }
  }
  const std::byte* key_panel(int64_t i) const { return keys_ + i * sizes_.key_panel_bytes; }
  const std::byte* value_panel(int64_t i) const { return values_ + i * sizes_.value_panel_bytes; }
  int64_t value_panels() const { return sizes_.value_panels; }

  /// Whether the values of tokens [first, first + count) hold no infinity and no NaN; the arguments
  /// are those of `load`.
  bool values_finite(const int32_t* pages, int64_t head, int64_t first, int64_t count) const {
    if (kv_.v.dtype == DType::kF32) {
      return exponents_below<uint32_t>(0x7f800000u, pages, head, first, count);
    }
    return exponents_below<uint16_t>(0x7f80u, pages, head, first, count);
  }
  /// Makes the value of token j of the part zero.
  void clear_value(int64_t j) {
    for (int64_t d = 0; d < kv_.head_dim(); ++d) {
      std::memset(values_ + value_offset(j, d), 0, dtype_bytes(kv_.v.dtype));
    }
  }

 private:
  struct Sizes {
    explicit Sizes(const KvPool& kv) {
      const auto element = static_cast<int64_t>(dtype_bytes(kv.k.dtype));
      key_panels = kAttentionSplitTokens / kColumns;
      key_panel_bytes = cpu::padded_k(kv.k.dtype, kv.head_dim()) * kColumns * element;
      value_panels = (kv.head_dim() + kColumns - 1) / kColumns;
      value_panel_bytes = kAttentionSplitTokens * kColumns * element;
    }
    int64_t key_panels, key_panel_bytes, value_panels, value_panel_bytes;
  };

  /// Bytes from the first value panel to element d of token j.
  int64_t value_offset(int64_t j, int64_t d) const {
    const int64_t panel = d / kColumns * sizes_.value_panel_bytes;
    const int64_t column = d % kColumns;
    if (kv_.v.dtype == DType::kF32) return panel + (j * kColumns + column) * 4;
    return panel + ((j / 2 * kColumns + column) * 2 + j % 2) * 2;
  }
  /// Whether no value has all bits of the exponent set.
  template <typename Raw>
  bool exponents_below(Raw exponent, const int32_t* pages, int64_t head, int64_t first,
                       int64_t count) const {
    bool all = true;
    for (int64_t j = first; j < first + count; ++j) {
      const auto* v = row<Raw>(kv_.v, pages, head, j);
      for (int64_t d = 0; d < kv_.head_dim(); ++d) all &= (v[d] & exponent) != exponent;
    }
    return all;
  }

  template <typename T>
  const T* row(const AnyTensor& pool, const int32_t* pages, int64_t head, int64_t token) const {
    const int64_t page_tokens = kv_.page_tokens();
    const int64_t page = pages[token / page_tokens];
    return static_cast<const T*>(pool.data) +
           ((page * kv_.kv_heads() + head) * page_tokens + token % page_tokens) * kv_.head_dim();
  }

  void load_f32(const int32_t* pages, int64_t head, int64_t first, int64_t count) {
    const int64_t head_dim = kv_.head_dim();
    for (int64_t j = 0; j < count; ++j) {
      const auto* k = row<float>(kv_.k, pages, head, first + j);
      auto* key =
          reinterpret_cast<float*>(keys_ + j / kColumns * sizes_.key_panel_bytes) + j % kColumns;
      for (int64_t d = 0; d < head_dim; ++d) key[d * kColumns] = k[d];
      const auto* v = row<float>(kv_.v, pages, head, first + j);
      for (int64_t p = 0; p < sizes_.value_panels; ++p) {
        auto* value = reinterpret_cast<float*>(values_ + p * sizes_.value_panel_bytes);
        const int64_t width = std::min(kColumns, head_dim - p * kColumns);
        std::copy_n(v + p * kColumns, width, value + j * kColumns);
      }
    }
  }

  void load_bf16(const int32_t* pages, int64_t head, int64_t first, int64_t count) {
    const int64_t head_dim = kv_.head_dim();
    for (int64_t j = 0; j < count; ++j) {
      const auto* k = row<uint16_t>(kv_.k, pages, head, first + j);
      auto* key =
          reinterpret_cast<uint32_t*>(keys_ + j / kColumns * sizes_.key_panel_bytes) + j % kColumns;
      for (int64_t d = 0; d + 1 < head_dim; d += 2) {
        uint32_t pair;
        std::memcpy(&pair, k + d, sizeof pair);
        key[d / 2 * kColumns] = pair;
      }
      if (head_dim % 2 != 0) key[head_dim / 2 * kColumns] = k[head_dim - 1];
    }
    for (int64_t j = 0; j < count; j += 2) {
      const auto* v0 = row<uint16_t>(kv_.v, pages, head, first + j);
      // An odd last token pairs with zeros.
      const auto* v1 = j + 1 < count ? row<uint16_t>(kv_.v, pages, head, first + j + 1) : nullptr;
      for (int64_t p = 0; p < sizes_.value_panels; ++p) {
        auto* value =
            reinterpret_cast<uint32_t*>(values_ + p * sizes_.value_panel_bytes) + j / 2 * kColumns;
        const int64_t width = std::min(kColumns, head_dim - p * kColumns);
        const uint16_t* a = v0 + p * kColumns;
        if (v1 == nullptr) {
          for (int64_t d = 0; d < width; ++d) value[d] = a[d];
        } else {
          const uint16_t* b = v1 + p * kColumns;
          for (int64_t d = 0; d < width; ++d) value[d] = a[d] | uint32_t{b[d]} << 16;
        }
      }
    }
  }

  const KvPool& kv_;
  Sizes sizes_;
  std::byte* keys_;
  std::byte* values_;
};

}  // namespace tandem::ops
