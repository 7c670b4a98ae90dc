// From the tensors of a checkpoint to the packed weights of a Qwen3.
#include <cstring>
#include <string>
#include <utility>

#include "model/qwen3.h"
#include "model/qwen3_specs.h"
#include "model/rope.h"
#include "model/tensor_names.h"

namespace tandem::model {

/// Reads one tensor after another in file-name order of the layers; what is packed is dropped from
/// memory, so that loading needs little more than the packed weights.
class Qwen3Loader {
 public:
  Qwen3Loader(Device& device, WeightSource& source, Qwen3& model)
      : device_(device),
        source_(source),
        model_(model),
        shard_(model.shard_),
        config_(shard_.config),
        specs_(shard_, model.options_.compute),
        experts_(config_, source) {}

  Result<void> load() {
    const ModelConfig& c = config_;
    model_.embedding_ = TANDEM_TRY(load_table(names_.embedding()));
    model_.layers_.resize(static_cast<size_t>(c.layers_count));
    for (int64_t i = 0; i < c.layers_count; ++i) TANDEM_TRY(load_layer(i));
    model_.final_norm_ = TANDEM_TRY(load_vector(names_.final_norm()));
    model_.lm_head_ = TANDEM_TRY(ops::PackedLinear::create(device_, specs_.lm_head));
    TANDEM_TRY(pack(model_.lm_head_, 0, 0,
                    c.tie_word_embeddings ? names_.embedding() : names_.lm_head(),
                    {.rows = shard_.vocabulary}));
    const std::vector<float> table = make_rope_table(c.rope, model_.options_.positions_max);
    model_.cos_sin_ = TANDEM_TRY(device_.allocate(table.size() * sizeof(float)));
    std::memcpy(model_.cos_sin_.data(), table.data(), table.size() * sizeof(float));
    return {};
  }

 private:
  Result<void> load_layer(int64_t i) {
    const ModelConfig& c = config_;
    const Range q_rows{shard_.heads.first * c.head_dim, shard_.heads.end * c.head_dim};
    const Range kv_rows{shard_.kv_heads.first * c.head_dim, shard_.kv_heads.end * c.head_dim};
    Qwen3::Layer& layer = model_.layers_[static_cast<size_t>(i)];
    layer.attention_norm = TANDEM_TRY(load_vector(names_.input_norm(i)));
    layer.q_norm = TANDEM_TRY(load_vector(names_.q_norm(i)));
    layer.k_norm = TANDEM_TRY(load_vector(names_.k_norm(i)));
    layer.mlp_norm = TANDEM_TRY(load_vector(names_.post_attention_norm(i)));

    layer.qkv = TANDEM_TRY(ops::PackedLinear::create(device_, specs_.qkv));
    const int64_t k_first = q_rows.count();
    const int64_t v_first = k_first + kv_rows.count();
    TANDEM_TRY(pack(layer.qkv, 0, 0, names_.attention(i, "q_proj"), {.rows = q_rows}));
    TANDEM_TRY(pack(layer.qkv, 0, k_first, names_.attention(i, "k_proj"), {.rows = kv_rows}));
    TANDEM_TRY(pack(layer.qkv, 0, v_first, names_.attention(i, "v_proj"), {.rows = kv_rows}));
    layer.o = TANDEM_TRY(ops::PackedLinear::create(device_, specs_.o));
    TANDEM_TRY(pack(layer.o, 0, 0, names_.attention(i, "o_proj"),
                    {.rows = {0, c.hidden_size}, .columns = q_rows}));
    return c.layer_is_moe[static_cast<size_t>(i)] ? load_moe(i, layer.moe)
                                                  : load_dense(i, layer.dense);
  }

  Result<void> load_dense(int64_t i, Qwen3::DenseMlp& mlp) {
    mlp.gate_up = TANDEM_TRY(ops::PackedLinear::create(device_, specs_.dense_gate_up));
    const Range own = shard_.dense_columns;
    TANDEM_TRY(pack(mlp.gate_up, 0, 0, names_.mlp(i, "gate_proj"), {.rows = own}));
    TANDEM_TRY(pack(mlp.gate_up, 0, own.count(), names_.mlp(i, "up_proj"), {.rows = own}));
    mlp.down = TANDEM_TRY(ops::PackedLinear::create(device_, specs_.dense_down));
    return pack(mlp.down, 0, 0, names_.mlp(i, "down_proj"),
                {.rows = {0, config_.hidden_size}, .columns = own});
  }

  Result<void> load_moe(int64_t i, Qwen3::MoeMlp& moe) {
    moe.router = TANDEM_TRY(ops::PackedLinear::create(device_, specs_.router));
    TANDEM_TRY(pack(moe.router, 0, 0, names_.router(i), {.rows = {0, config_.experts_count}}));
    moe.experts = TANDEM_TRY(ExpertStack::create(device_, specs_, shard_.expert_placement()));
    TANDEM_TRY(experts_.fill(*moe.experts, shard_.rank, i, nullptr));
    if (shard_.layout.rebalances_experts && model_.spare_experts_ == nullptr) {
      model_.spare_experts_ =
          TANDEM_TRY(ExpertStack::create(device_, specs_, shard_.expert_placement()));
    }
    return {};
  }

  Result<void> pack(ops::PackedLinear& weight, int64_t index, int64_t first_row,
                    const std::string& name, const WeightSlice& part) {
    const WeightView view = TANDEM_TRY(source_.slice(name, part));
    weight.set_rows(index, first_row,
                    {.data = view.bytes.data(),
                     .dtype = view.dtype,
                     .rows = view.shape[0],
                     .row_stride = view.row_stride});
    source_.release(name);
    return {};
  }

  Result<Buffer> load_vector(const std::string& name) {
    const WeightView view = TANDEM_TRY(source_.tensor(name));
    Buffer buffer =
        TANDEM_TRY(device_.allocate(static_cast<size_t>(view.shape[0]) * sizeof(float)));
    for (int64_t i = 0; i < view.shape[0]; ++i)
      buffer.as<float>()[i] = load_float(view.bytes.data(), view.dtype, i);
    return buffer;
  }

  /// This rank's rows of the embedding table, row-major in the compute dtype.
  Result<Buffer> load_table(const std::string& name) {
    const WeightView view = TANDEM_TRY(source_.slice(name, {.rows = shard_.vocabulary}));
    const int64_t n = view.shape[0] * view.shape[1];
    const DType compute = model_.options_.compute;
    Buffer buffer = TANDEM_TRY(device_.allocate(static_cast<size_t>(n) * dtype_bytes(compute)));
    if (view.dtype == compute) {
      std::memcpy(buffer.data(), view.bytes.data(), view.bytes.size());
    } else if (compute == DType::kF32) {
      for (int64_t i = 0; i < n; ++i)
        buffer.as<float>()[i] = load_float(view.bytes.data(), view.dtype, i);
    } else {
      for (int64_t i = 0; i < n; ++i)
        buffer.as<bf16>()[i] = to_bf16(load_float(view.bytes.data(), view.dtype, i));
    }
    return buffer;
  }

  Device& device_;
  WeightSource& source_;
  Qwen3& model_;
  const Shard& shard_;
  const ModelConfig& config_;
  const Qwen3Specs specs_;
  ExpertReader experts_;
  TensorNames names_;
};

Result<std::unique_ptr<Qwen3>> Qwen3::load(Device& device, const Shard& shard, WeightSource& source,
                                           const Options& options) {
  TANDEM_CHECK(options.positions_max > 0, "a model serves at least one position");
  TANDEM_CHECK(options.compute == DType::kBF16 || options.compute == DType::kF32,
               "weights are stored as bf16 or f32");
  TANDEM_TRY(check_tensors(shard.config, source));
  std::unique_ptr<Qwen3> model(new Qwen3(shard, options));
  TANDEM_TRY(Qwen3Loader(device, source, *model).load());
  return model;
}

}  // namespace tandem::model
