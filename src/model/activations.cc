#include "model/activations.h"

#include <algorithm>
#include <cstddef>

namespace tandem::model {
namespace {

/// Hands out consecutive 64-byte aligned pieces of one block; with no block it only counts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  template <typename T, size_t Rank>
  void carve(TensorView<T, static_cast<int>(Rank)>& view, const int64_t (&shape)[Rank]) {
    std::array<int64_t, Rank> dims{};
    std::copy_n(shape, Rank, dims.begin());
    T* data = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    view = TensorView<T, static_cast<int>(Rank)>::make(data, dims);
    bytes_ += (static_cast<size_t>(view.size()) * sizeof(T) + 63) / 64 * 64;
  }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  size_t bytes_ = 0;
};

size_t lay_out(Activations& a, const Shard& shard, Activations::Limits limits, std::byte* base) {
  const ModelConfig& c = shard.config;
  const int64_t tokens = limits.tokens_max;
  const bool any_moe =
      std::find(c.layer_is_moe.begin(), c.layer_is_moe.end(), true) != c.layer_is_moe.end();
  const bool any_dense =
      std::find(c.layer_is_moe.begin(), c.layer_is_moe.end(), false) != c.layer_is_moe.end();
  Carver carver(base);
  carver.carve(a.residual, {tokens, c.hidden_size});
  carver.carve(a.normed, {tokens, c.hidden_size});
  if (shard.layout.tensor_parallel > 1) carver.carve(a.part, {tokens, c.hidden_size});
  carver.carve(a.qkv, {tokens, (shard.heads.count() + 2 * shard.kv_heads.count()) * c.head_dim});
  carver.carve(a.attention, {tokens, shard.heads.count() * c.head_dim});
  if (any_moe) {
    const int64_t pairs = tokens * c.experts_per_token;
    carver.carve(a.router, {tokens, c.experts_count});
    carver.carve(a.expert_ids, {c.layers_count, tokens, c.experts_per_token});
    carver.carve(a.expert_weights, {tokens, c.experts_per_token});
    carver.carve(a.expert_offsets, {shard.expert_slots + 1});
    carver.carve(a.row_source, {pairs});
    carver.carve(a.row_of, {tokens, c.experts_per_token});
    const int64_t rows = shard.expert_rows_max(tokens);
    carver.carve(a.gate_up, {rows, 2 * c.moe_intermediate_size});
    carver.carve(a.activated, {rows, c.moe_intermediate_size});
    carver.carve(a.expert_rows, {rows, c.hidden_size});
  }
  if (any_dense) {
    carver.carve(a.dense_gate_up, {tokens, 2 * shard.dense_columns.count()});
    carver.carve(a.dense_activated, {tokens, shard.dense_columns.count()});
  }
  carver.carve(a.last_hidden, {limits.rows_max, c.hidden_size});
  carver.carve(a.logits, {limits.rows_max, c.vocab_size});
  return carver.bytes();
}

}  // namespace

size_t Activations::bytes_needed(const Shard& shard, Limits limits) {
  Activations unplaced;
  return lay_out(unplaced, shard, limits, nullptr);
}

Result<Activations> Activations::create(Device& device, const Shard& shard, Limits limits) {
  TANDEM_CHECK(limits.tokens_max > 0 && limits.rows_max > 0, "a step holds at least one token");
  Activations a;
  a.storage_ = TANDEM_TRY(device.allocate(bytes_needed(shard, limits)));
  lay_out(a, shard, limits, a.storage_.as<std::byte>());
  return a;
}

}  // namespace tandem::model
