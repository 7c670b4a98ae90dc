"""The checkpoints whose logits are compared with transformers: trained ones that are in the project
and small random ones, each for a part of the architecture or a spelling of its config."""

from dataclasses import dataclass

DENSE = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 32,  # not hidden_size / num_attention_heads
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 160,  # more than the 128 columns of one partial sum
    "max_position_embeddings": 256,
    "num_attention_heads": 6,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "vocab_size": 128,
}
MOE = DENSE | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 48,
    "num_experts": 8,
    "num_experts_per_tok": 3,
}
# Small enough that f16 weights fit into one file of 64 KiB and f32 weights into two.
SMALL = {"head_dim": 16, "hidden_size": 32, "intermediate_size": 40, "num_attention_heads": 4,
         "num_hidden_layers": 2, "vocab_size": 96}


def without(config: dict, *keys: str) -> dict:
    return {key: value for key, value in config.items() if key not in keys}


@dataclass(frozen=True)
class Case:
    name: str
    config: dict
    prompt_tokens: int = 100
    seed: int = 1
    # bf16 weights follow the rule of RandomSource and are not committed. Others are, in this many
    # files, drawn with all the bits of their type.
    stored: str = "bf16"
    shards: int = 1


# transformers 5 writes `rope_parameters` and `dtype`; 4 wrote `rope_theta`, `rope_scaling` and
# `torch_dtype`. Both meet both architectures.
CASES = [
    Case("dense-tied", DENSE | {
        "tie_word_embeddings": True, "dtype": "bfloat16",
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    Case("dense-old-f16", DENSE | SMALL | {
        "tie_word_embeddings": False, "torch_dtype": "float16", "num_key_value_heads": None,
        "rope_theta": 1e4, "rope_scaling": None, "use_sliding_window": False,
        "sliding_window": 4096, "max_window_layers": 2}, stored="f16"),
    Case("dense-yarn", DENSE | {
        "tie_word_embeddings": True, "dtype": "bfloat16", "vocab_size": 64,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
                            "original_max_position_embeddings": 64}}, prompt_tokens=200),
    Case("dense-old-linear", DENSE | {
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "rope_theta": 1e4,
        "rope_scaling": {"type": "linear", "factor": 2.0}}),
    Case("moe-sparse-step", MOE | {
        "tie_word_embeddings": False, "dtype": "bfloat16", "num_hidden_layers": 6,
        "decoder_sparse_step": 2, "mlp_only_layers": [3], "norm_topk_prob": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    # head_dim, norm_topk_prob, decoder_sparse_step and mlp_only_layers by their defaults.
    Case("moe-old-unnormalised", without(MOE, "head_dim") | {
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "num_attention_heads": 4,
        "rope_theta": 1e6, "rope_scaling": None}),
    Case("moe-old-yarn", MOE | {
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "vocab_size": 64,
        "norm_topk_prob": True, "rope_theta": 1e4,
        "rope_scaling": {"type": "yarn", "factor": 3.0, "beta_fast": 16.0, "beta_slow": 2.0,
                         "original_max_position_embeddings": 48}}, prompt_tokens=200),
    # `num_local_experts` is what transformers 5 writes; the head lies in the second shard.
    Case("moe-sharded-f32", without(MOE, "num_experts") | SMALL | {
        "tie_word_embeddings": False, "dtype": "float32", "num_local_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
         stored="f32", shards=2),
]
