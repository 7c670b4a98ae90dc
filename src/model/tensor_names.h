#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/weight_parts.h"
#include "model/weight_source.h"

namespace tandem::model {

/// The names that transformers gives the tensors of Qwen3 and Qwen3-MoE.
class TensorNames {
 public:
  std::string embedding() const;   // [vocabulary, hidden]
  std::string final_norm() const;  // [hidden]
  std::string lm_head() const;     // [vocabulary, hidden]; absent when tied to the embedding

  std::string input_norm(int64_t layer) const;           // [hidden]
  std::string q_norm(int64_t layer) const;               // [head_dim]
  std::string k_norm(int64_t layer) const;               // [head_dim]
  std::string post_attention_norm(int64_t layer) const;  // [hidden]

  /// `projection` is q_proj, k_proj, v_proj or o_proj.
  std::string attention(int64_t layer, std::string_view projection) const;
  /// `projection` is gate_proj, up_proj or down_proj, of a dense layer.
  std::string mlp(int64_t layer, std::string_view projection) const;
  std::string router(int64_t layer) const;  // [experts, hidden]
  /// The same projections of one expert of a layer with experts.
  std::string expert(int64_t layer, int64_t expert, std::string_view projection) const;
  /// All experts of a layer in one tensor, the other layout that transformers 5 writes.
  /// `projection` is gate_up_proj [experts, 2 * moe_intermediate, hidden], an expert's gate rows
  /// before its up rows, or down_proj [experts, hidden, moe_intermediate].
  std::string fused_experts(int64_t layer, std::string_view projection) const;
};

struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
  WeightPart part = WeightPart::kEmbedding;

  size_t elements() const;
};

/// [layers] Which layers have their experts fused, judged by the names that a checkpoint has. A
/// layer with either fused name counts, so that its other tensors are told as missing.
std::vector<bool> fused_layers(const ModelConfig& config, const std::vector<std::string>& names);

/// Every tensor that a model of this shape reads, layer by layer. Experts have a tensor each, but
/// for the layers in `fused` ([layers], or empty for none).
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config,
                                             const std::vector<bool>& fused = {});

/// Whether the source has what the config asks for. Missing and unexpected tensors, wrong shapes
/// and wrong dtypes (bf16, f16 and f32 are right) come back together in one Error. Ignored, as
/// transformers ignores them: draft layers (`mtp.*`), stored rotary frequencies, and an lm_head
/// beside tied embeddings.
Result<void> check_tensors(const ModelConfig& config, WeightSource& source);

}  // namespace tandem::model
