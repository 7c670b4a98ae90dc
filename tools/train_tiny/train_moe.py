"""Trains tiny-moe: Qwen3-MoE and one draft layer, written as a Hugging Face checkpoint.

    python3 tools/train_tiny/train_moe.py CORPUS TOKENIZER TOKENIZER_CONFIG OUTPUT SECONDS
"""

import torch
from torch import Tensor, nn

from _checkpoint import stored
from _model import (CHOSEN_EXPERTS, EPSILON, EXPERTS, HEAD_DIM, HIDDEN, ROPE_THETA, TinyModel,
                    attend, expert_weights, linear, mix_experts, normalized)
from _run import Architecture, run
from _text import POSITIONS_MAX, VOCABULARY, Vocabulary

LAYERS, HEADS, KV_HEADS, EXPERT_WIDTH = 4, 8, 4, 128


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return normalized(x).to(x.dtype) * self.weight.to(x.dtype)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(HIDDEN), Norm(HIDDEN)
        self.q_proj = linear(HIDDEN, HEADS * HEAD_DIM)
        self.k_proj = linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.v_proj = linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.o_proj = linear(HEADS * HEAD_DIM, HIDDEN)
        self.q_norm, self.k_norm = Norm(HEAD_DIM), Norm(HEAD_DIM)
        self.gate = linear(HIDDEN, EXPERTS)
        self.gate_up, self.down = expert_weights(EXPERT_WIDTH, LAYERS)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
        batch, tokens, _ = x.shape
        y = self.input_layernorm(x)
        q = self.q_norm(self.q_proj(y).view(batch, tokens, HEADS, HEAD_DIM)).transpose(1, 2)
        k = self.k_norm(self.k_proj(y).view(batch, tokens, KV_HEADS, HEAD_DIM)).transpose(1, 2)
        v = self.v_proj(y).view(batch, tokens, KV_HEADS, HEAD_DIM).transpose(1, 2)
        attended = attend(q, k, v, cosines, sines)
        x = x + self.o_proj(attended.reshape(batch, tokens, HEADS * HEAD_DIM))
        y = self.post_attention_layernorm(x)
        mixed, unevenness = mix_experts(y, self.gate, self.gate_up, self.down)
        return x + mixed, unevenness


def layer_tensors(prefix: str, layer: Layer) -> dict[str, Tensor]:
    names = {f"self_attn.{part}": f"{part}" for part in
             ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")}
    names |= {"input_layernorm": "input_layernorm", "mlp.gate": "gate",
              "post_attention_layernorm": "post_attention_layernorm"}
    tensors = {f"{prefix}.{name}.weight": stored(getattr(layer, part).weight)
               for name, part in names.items()}
    for index in range(EXPERTS):
        expert = f"{prefix}.mlp.experts.{index}"
        gate, up = layer.gate_up[:, index].chunk(2, -1)
        tensors[f"{expert}.gate_proj.weight"] = stored(gate.t())
        tensors[f"{expert}.up_proj.weight"] = stored(up.t())
        tensors[f"{expert}.down_proj.weight"] = stored(layer.down[index].t())
    return tensors


def config(vocabulary: Vocabulary) -> dict:
    return {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
        "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": vocabulary.end_of_text, "eos_token_id": vocabulary.end_of_turn,
        "decoder_sparse_step": 1, "head_dim": HEAD_DIM, "hidden_act": "silu",
        "hidden_size": HIDDEN, "initializer_range": 0.02, "intermediate_size": 512,
        "max_position_embeddings": POSITIONS_MAX, "mlp_only_layers": [],
        "moe_intermediate_size": EXPERT_WIDTH, "norm_topk_prob": True,
        "num_attention_heads": HEADS, "num_experts": EXPERTS,
        "num_experts_per_tok": CHOSEN_EXPERTS, "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS, "num_nextn_predict_layers": 1,
        "output_router_logits": False, "rms_norm_eps": EPSILON, "rope_scaling": None,
        "rope_theta": ROPE_THETA, "router_aux_loss_coef": 0.01, "sliding_window": None,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True,
        "use_sliding_window": False, "vocab_size": VOCABULARY,
    }


def make_model(unscored: list[int]) -> TinyModel:
    return TinyModel(LAYERS, lambda _: Layer(), Norm, HEAD_DIM, unscored)


if __name__ == "__main__":
    run(__doc__.splitlines()[0],
        Architecture(make_model, lambda _, step: torch.compile(step), layer_tensors, config,
                     log_interval=200, compared_tokens=256))
