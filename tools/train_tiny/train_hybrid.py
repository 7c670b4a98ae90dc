"""Trains tiny-hybrid: the text architecture of Qwen3.5-MoE (gated delta nets, gated attention in
every fourth layer, a shared expert) and one draft layer, written as a Hugging Face checkpoint.

    python3 tools/train_tiny/train_hybrid.py CORPUS TOKENIZER TOKENIZER_CONFIG OUTPUT SECONDS
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _checkpoint import stored
from _delta_net import KERNEL, KEY_DIM, KEY_HEADS, VALUE_DIM, VALUE_HEADS, DeltaNet
from _model import (CHOSEN_EXPERTS, EPSILON, EXPERTS, HEAD_DIM, HIDDEN, ROPE_THETA, TinyModel,
                    attend, expert_weights, linear, mix_experts, normalized)
from _run import Architecture, run
from _text import POSITIONS_MAX, VOCABULARY, Vocabulary
from _training import Step

LAYERS, HEADS, KV_HEADS, EXPERT_WIDTH, SHARED_WIDTH = 8, 4, 2, 64, 64
ROTARY, ATTENTION_INTERVAL = 16, 4


class Norm(nn.Module):
    """Its weight is what is added to 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return (normalized(x) * (1 + self.weight.float())).to(x.dtype)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = linear(HIDDEN, 2 * HEADS * HEAD_DIM)
        self.k_proj = linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.v_proj = linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.o_proj = linear(HEADS * HEAD_DIM, HIDDEN)
        self.q_norm, self.k_norm = Norm(HEAD_DIM), Norm(HEAD_DIM)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, gate = self.q_proj(x).view(batch, tokens, HEADS, 2 * HEAD_DIM).chunk(2, -1)
        q = self.q_norm(q).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(batch, tokens, KV_HEADS, HEAD_DIM)).transpose(1, 2)
        v = self.v_proj(x).view(batch, tokens, KV_HEADS, HEAD_DIM).transpose(1, 2)
        attended = attend(q, k, v, cosines, sines) * torch.sigmoid(gate)
        return self.o_proj(attended.reshape(batch, tokens, HEADS * HEAD_DIM))


class Experts(nn.Module):
    """Routed experts and a gated one that every token uses."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = linear(HIDDEN, EXPERTS)
        self.shared_gate = linear(HIDDEN, SHARED_WIDTH)
        self.shared_up = linear(HIDDEN, SHARED_WIDTH)
        self.shared_down, self.shared_share = linear(SHARED_WIDTH, HIDDEN), linear(HIDDEN, 1)
        self.gate_up, self.down = expert_weights(EXPERT_WIDTH, LAYERS)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mixed, unevenness = mix_experts(x, self.gate, self.gate_up, self.down)
        # The share comes first: gradients of x add up in the reverse order, and bf16 rounds them.
        share = torch.sigmoid(self.shared_share(x))
        shared = self.shared_down(F.silu(self.shared_gate(x)) * self.shared_up(x))
        return mixed + share * shared, unevenness


def attends(index: int) -> bool:
    return (index + 1) % ATTENTION_INTERVAL == 0


class Layer(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.attends = attends(index)
        self.input_layernorm, self.post_attention_layernorm = Norm(HIDDEN), Norm(HIDDEN)
        self.mixer = Attention() if self.attends else DeltaNet()
        self.mlp = Experts()

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
        y = self.input_layernorm(x)
        x = x + (self.mixer(y, cosines, sines) if self.attends else self.mixer(y))
        mixed, unevenness = self.mlp(self.post_attention_layernorm(x))
        return x + mixed, unevenness


def mixer_tensors(prefix: str, layer: Layer) -> dict[str, Tensor]:
    mixer = layer.mixer
    if layer.attends:
        return {f"{prefix}.self_attn.{name}.weight": stored(getattr(mixer, name).weight)
                for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")}
    prefix += ".linear_attn"
    tensors = {f"{prefix}.{name}.weight": stored(getattr(mixer, name).weight)
               for name in ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")}
    return tensors | {
        f"{prefix}.conv1d.weight": stored(mixer.convolution),
        f"{prefix}.A_log": stored(mixer.A_log, torch.float32),
        f"{prefix}.dt_bias": stored(mixer.dt_bias),
        f"{prefix}.norm.weight": stored(mixer.norm, torch.float32),
    }


def layer_tensors(prefix: str, layer: Layer) -> dict[str, Tensor]:
    experts = layer.mlp
    weights = {
        "input_layernorm.weight": layer.input_layernorm.weight,
        "post_attention_layernorm.weight": layer.post_attention_layernorm.weight,
        "mlp.gate.weight": experts.gate.weight,
        "mlp.experts.gate_up_proj": experts.gate_up.permute(1, 2, 0),
        "mlp.experts.down_proj": experts.down.transpose(1, 2),
        "mlp.shared_expert.gate_proj.weight": experts.shared_gate.weight,
        "mlp.shared_expert.up_proj.weight": experts.shared_up.weight,
        "mlp.shared_expert.down_proj.weight": experts.shared_down.weight,
        "mlp.shared_expert_gate.weight": experts.shared_share.weight,
    }
    tensors = {f"{prefix}.{name}": stored(weight) for name, weight in weights.items()}
    return tensors | mixer_tensors(prefix, layer)


def config(vocabulary: Vocabulary) -> dict:
    rope = {"rope_type": "default", "rope_theta": ROPE_THETA,
            "partial_rotary_factor": ROTARY / HEAD_DIM, "mrope_interleaved": True,
            "mrope_section": [3, 3, 2]}
    return {
        "architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text",
        "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True,
        "bos_token_id": None, "eos_token_id": vocabulary.end_of_text, "dtype": "bfloat16",
        "full_attention_interval": ATTENTION_INTERVAL, "head_dim": HEAD_DIM,
        "hidden_act": "silu", "hidden_size": HIDDEN, "initializer_range": 0.02,
        "layer_types": ["full_attention" if attends(index) else "linear_attention"
                        for index in range(LAYERS)],
        "linear_conv_kernel_dim": KERNEL, "linear_key_head_dim": KEY_DIM,
        "linear_num_key_heads": KEY_HEADS, "linear_num_value_heads": VALUE_HEADS,
        "linear_value_head_dim": VALUE_DIM, "mamba_ssm_dtype": "float32",
        "max_position_embeddings": POSITIONS_MAX, "mlp_only_layers": [],
        "moe_intermediate_size": EXPERT_WIDTH, "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False, "num_attention_heads": HEADS,
        "num_experts": EXPERTS, "num_experts_per_tok": CHOSEN_EXPERTS,
        "num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS,
        "output_router_logits": False, "partial_rotary_factor": ROTARY / HEAD_DIM,
        "rms_norm_eps": EPSILON, "rope_parameters": rope, "router_aux_loss_coef": 0.01,
        "shared_expert_intermediate_size": SHARED_WIDTH, "tie_word_embeddings": False,
        "use_cache": True, "vocab_size": VOCABULARY,
    }


def make_model(unscored: list[int]) -> TinyModel:
    return TinyModel(LAYERS, Layer, Norm, ROTARY, unscored)


def compiled(model: TinyModel, step: Step) -> Step:
    """Compiles the parts around the delta rule, whose loop over chunks would be unrolled."""
    torch.backends.cuda.matmul.allow_tf32 = True
    torch._dynamo.config.cache_size_limit = 64
    for layer in [*model.layers, model.draft_layer]:
        layer.mlp.compile()
        if layer.attends:
            layer.mixer.compile()
    return step


if __name__ == "__main__":
    run(" ".join(__doc__.split("\n\n")[0].split()),
        Architecture(make_model, compiled, layer_tensors, config,
                     log_interval=100, compared_tokens=2048))
