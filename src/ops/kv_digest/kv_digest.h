#pragma once

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::ops {

/// digests[i] = XXH3-64, seed 0, of the K or V of one slice of a sequence: of heads [first_head,
/// first_head + heads_count) one after the other, the bytes of the slice's tokens in their order.
/// Slice i is what lies in [first_token, end_token) of the i-th stretch of slice_tokens positions,
/// counted from the stretch with first_token; so a source whose pages have another size gets the
/// digests of the target's pages.
struct KvDigestArgs {
  AnyTensor pool;                      ///< [pages, kv_heads, page_tokens, head_dim], bf16 or f32
  TensorView<const int32_t, 1> pages;  ///< [pages], from the one that holds first_token on
  int64_t first_head = 0;
  int64_t heads_count = 0;
  int64_t first_token = 0;          ///< positions in the sequence, at least one
  int64_t end_token = 0;            ///< exclusive
  int64_t slice_tokens = 0;         ///< of one of the target's pages
  TensorView<uint64_t, 1> digests;  ///< [slices]
};

Result<void> kv_digest(Stream& stream, const KvDigestArgs& args);

}  // namespace tandem::ops
