#pragma once

#include "device/tensor.h"

namespace tandem::ops {

/// The K and V pools of one layer on one rank. One head of one page is one contiguous slice, so
/// that a transfer can take any heads of any pages.
struct KvPool {
  AnyTensor k;  ///< [pages, kv_heads, page_tokens, head_dim], bf16 or f32
  AnyTensor v;  ///< the same

  int64_t pages() const { return k.shape[0]; }
  int64_t kv_heads() const { return k.shape[1]; }
  int64_t page_tokens() const { return k.shape[2]; }
  int64_t head_dim() const { return k.shape[3]; }
};

}  // namespace tandem::ops
