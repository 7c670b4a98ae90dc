#pragma once

#include <cstdint>

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"
#include "model/sharding.h"

namespace tandem::model {

/// Every intermediate tensor of a step on one rank, allocated once for the largest step. A step
/// uses the first rows of each. Tensors that never live together share nothing: clarity first, they
/// are small beside the weights.
class Activations {
 public:
  struct Limits {
    int64_t tokens_max = 0;  ///< tokens of one step
    int64_t rows_max = 0;    ///< tokens of one step whose logits are wanted
  };
  static Result<Activations> create(Device& device, const Shard& shard, Limits limits);
  /// What create() allocates.
  static size_t bytes_needed(const Shard& shard, Limits limits);

  TensorView<float, 2> residual;          ///< [tokens, hidden]
  TensorView<float, 2> normed;            ///< [tokens, hidden]
  TensorView<float, 2> part;              ///< [tokens, hidden], this rank's part of a sum, if any
  TensorView<float, 2> qkv;               ///< [tokens, (heads + 2 * kv_heads) * head_dim]
  TensorView<float, 2> attention;         ///< [tokens, heads * head_dim]
  TensorView<float, 2> router;            ///< [tokens, experts]
  TensorView<int32_t, 3> expert_ids;      ///< [layers, tokens, k], kept to the end of the step
  TensorView<float, 2> expert_weights;    ///< [tokens, k]
  TensorView<int32_t, 1> expert_offsets;  ///< [experts on this rank + 1]
  TensorView<int32_t, 1> row_source;      ///< [tokens * k]
  TensorView<int32_t, 2> row_of;          ///< [tokens, k]
  TensorView<float, 2> gate_up;           ///< [expert rows, 2 * moe_intermediate]
  TensorView<float, 2> activated;         ///< [expert rows, moe_intermediate]
  TensorView<float, 2> expert_rows;       ///< [expert rows, hidden]
  TensorView<float, 2> dense_gate_up;     ///< [tokens, 2 * intermediate]
  TensorView<float, 2> dense_activated;   ///< [tokens, intermediate]
  TensorView<float, 2> last_hidden;       ///< [rows, hidden]
  TensorView<float, 2> logits;            ///< [rows, vocabulary]

  uint64_t expert_pairs = 0;  ///< (token, expert) pairs that this rank has computed since the start

 private:
  Buffer storage_;
};

}  // namespace tandem::model
