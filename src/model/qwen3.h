#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "model/activations.h"
#include "model/config.h"
#include "model/expert_stack.h"
#include "model/rank_comm.h"
#include "model/sharding.h"
#include "model/step_input.h"
#include "model/weight_parts.h"
#include "model/weight_source.h"
#include "ops/attention/kv_pool.h"
#include "ops/linear/packed_linear.h"

namespace tandem::model {

/// The Qwen3 and Qwen3-MoE decoders: RMSNorm, grouped-query attention with per-head q/k norm and
/// rotary positions, SwiGLU or a mixture of SwiGLU experts per layer. (Qwen3 technical report,
/// arXiv 2505.09388.) Weights are packed at load and then immutable, but for experts that change
/// their rank; several streams may run forward() at once, each with its own Activations.
class Qwen3 {
 public:
  struct Options {
    DType compute = DType::kBF16;  ///< kBF16 or kF32: stored weights, and what products are made of
    int64_t positions_max = 0;     ///< longest sequence: rows of the rotary table
  };
  /// Checks that the source has exactly the tensors the config asks for, then packs this rank's
  /// part of them; it reads nothing else.
  static Result<std::unique_ptr<Qwen3>> load(Device& device, const Shard& shard,
                                             WeightSource& source, const Options& options);
  /// What load() allocates on the device.
  static WeightBytes bytes_needed(const Shard& shard, const Options& options);

  /// Runs one step: writes K and V of every token into `kv` (one pool per layer) and leaves the
  /// logits of input.logits_rows in the first rows of activations.logits. On one of several ranks
  /// every rank calls it, with its `comm`: those of a tensor-parallel group with the same input,
  /// the groups with any, no tokens included. The result has the bits of one rank when
  /// shard().is_exact().
  Result<void> forward(Stream& stream, const StepInput& input, std::span<const ops::KvPool> kv,
                       Activations& activations, RankComm* comm = nullptr) const;

  /// Where the experts of a layer that has some are.
  const comm::ExpertPlacement& expert_placement(int64_t layer) const {
    return layers_[static_cast<size_t>(layer)].moe.experts->placement;
  }
  /// Gets ready, beside running steps, what this rank holds of a layer in another placement: what
  /// it has is copied, the rest is read from `experts`. On any one thread. For layouts that
  /// rebalance experts.
  Result<void> prepare_experts(ExpertReader& experts, int64_t layer,
                               comm::ExpertPlacement placement);
  /// Makes what was prepared last the layer's experts. Between two forward(); all ranks between
  /// the same two. No result changes by it.
  void switch_experts(int64_t layer) {
    std::swap(layers_[static_cast<size_t>(layer)].moe.experts, spare_experts_);
  }

  /// What this rank's slots hold, layer after layer of those that have experts.
  std::vector<int32_t> held_experts() const;
  /// Goes on as rank `rank` of those that are left when others are lost. `held` has the
  /// held_experts() of each, from which follows where every expert is; some may be nowhere.
  /// kDataLoss when they cannot be from ranks of this model. Between two forward().
  Result<void> go_on_among(int rank, std::span<const std::vector<int32_t>> held);
  /// An expert that nobody holds any more.
  struct LostExpert {
    int64_t layer = 0;
    int32_t expert = 0;
    bool operator==(const LostExpert&) const = default;
  };
  /// Of the tokens of the last forward(), the first lost expert that one asked for: from that layer
  /// on, what was computed for its sequence is wrong, K and V included. None if all is right.
  std::optional<LostExpert> lost_expert_of(const Activations& activations, Range tokens) const;

  const ModelConfig& config() const { return shard_.config; }
  const Shard& shard() const { return shard_; }
  const Options& options() const { return options_; }

 private:
  friend class Qwen3Loader;

  struct DenseMlp {
    ops::PackedLinear gate_up;  // [2 * intermediate, hidden]
    ops::PackedLinear down;     // [hidden, intermediate]
  };
  struct MoeMlp {
    ops::PackedLinear router;              // [experts, hidden], f32
    std::unique_ptr<ExpertStack> experts;  // this rank's
  };
  struct Layer {
    Buffer attention_norm;  // [hidden] f32
    Buffer q_norm;          // [head_dim] f32
    Buffer k_norm;          // [head_dim] f32
    Buffer mlp_norm;        // [hidden] f32
    ops::PackedLinear qkv;  // [(heads + 2 * kv_heads) * head_dim, hidden]
    ops::PackedLinear o;    // [hidden, heads * head_dim]
    DenseMlp dense;         // set when the layer is dense
    MoeMlp moe;             // set when the layer is a mixture
  };

  static TensorView<const float, 1> vector_of(const Buffer& buffer, int64_t n) {
    return TensorView<const float, 1>::make(buffer.as<const float>(), {n});
  }
  Qwen3(Shard shard, Options options);
  Result<void> attention_block(Stream& stream, size_t layer_index, const StepInput& input,
                               const ops::KvPool& kv, Activations& a, RankComm* comm) const;
  Result<void> dense_block(Stream& stream, const Layer& layer, int64_t tokens, Activations& a,
                           RankComm* comm) const;
  /// residual += x W^T, where ranks may hold some columns of W each.
  Result<void> project_back(Stream& stream, TensorView<const float, 2> x,
                            const ops::PackedLinear& weight, Activations& a, RankComm* comm) const;

  // qwen3_moe.cc
  struct ExpertInput;
  Result<void> moe_block(Stream& stream, size_t layer_index, TensorView<int32_t, 2> expert_ids,
                         Activations& a, RankComm* comm) const;
  Result<void> moe_on_one_rank(Stream& stream, const MoeMlp& moe,
                               TensorView<const int32_t, 2> expert_ids, Activations& a) const;
  Result<void> moe_where_tokens_stay(Stream& stream, const MoeMlp& moe,
                                     TensorView<const int32_t, 2> expert_ids, Activations& a,
                                     RankComm& comm) const;
  Result<void> moe_where_tokens_travel(Stream& stream, size_t layer_index,
                                       TensorView<const int32_t, 2> expert_ids, Activations& a,
                                       RankComm& comm) const;
  Result<TensorView<const float, 2>> run_experts(Stream& stream, const ExpertStack& experts,
                                                 const ExpertInput& input, Activations& a) const;

  Shard shard_;
  Options options_;
  Buffer embedding_;           // [vocabulary, hidden] in the compute dtype
  Buffer final_norm_;          // [hidden] f32
  Buffer cos_sin_;             // [positions_max, rotary_dim] f32
  ops::PackedLinear lm_head_;  // [vocabulary, hidden]
  std::vector<Layer> layers_;
  std::unique_ptr<ExpertStack> spare_experts_;  // of the layer that changes next
};

}  // namespace tandem::model
