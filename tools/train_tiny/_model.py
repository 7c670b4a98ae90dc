"""What both tiny models share: embedding, layers and head, the routed experts, and the draft layer
that predicts tokens further ahead (`mtp.*` in a checkpoint).

Modules draw their random weights in the order of their construction: a change of that order makes
other models of the same seed.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _text import POSITIONS_MAX, VOCABULARY

HIDDEN, HEAD_DIM = 256, 64
EXPERTS, CHOSEN_EXPERTS = 16, 4
ROPE_THETA, EPSILON = 10000.0, 1e-6
DRAFT_DEPTHS = (1, 2, 3)
NOT_SCORED = -100
INITIAL_DEVIATION = 0.02


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def normalized(x: Tensor) -> Tensor:
    """Root mean square 1 over the last dimension, in f32."""
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turns the first dimensions, twice as many as there are angles."""
    turned = 2 * cosines.shape[-1]
    left, right = x[..., :turned].chunk(2, -1)
    return torch.cat([left * cosines - right * sines, right * cosines + left * sines,
                      x[..., turned:]], -1)


def attend(q: Tensor, k: Tensor, v: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Causal attention of [batch, heads, tokens, HEAD_DIM]; the same with tokens before heads."""
    tokens, group = q.shape[2], q.shape[1] // k.shape[1]
    q = rotate(q, cosines[:tokens], sines[:tokens])
    k = rotate(k, cosines[:tokens], sines[:tokens])
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def expert_weights(width: int, layers: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Gate and up [HIDDEN, EXPERTS, 2 * width], and down [EXPERTS, width, HIDDEN]."""
    gate_up = nn.Parameter(torch.randn(HIDDEN, EXPERTS, 2 * width) * INITIAL_DEVIATION)
    deviation_scale = math.sqrt(2 * layers)
    down = torch.randn(EXPERTS, width, HIDDEN) * INITIAL_DEVIATION / deviation_scale
    return gate_up, nn.Parameter(down)


def mix_experts(x: Tensor, gate: nn.Linear, gate_up: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
    """The output of the chosen experts and how unevenly they are used (1: evenly). Computes every
    expert and weights most with 0: with 16 small ones that is faster than sorting tokens."""
    batch, tokens, _ = x.shape
    width = down.shape[1]
    probabilities = gate(x).float().softmax(-1)
    weights, chosen = probabilities.topk(CHOSEN_EXPERTS, -1)
    weights = weights / weights.sum(-1, keepdim=True)
    weights = torch.zeros_like(probabilities).scatter(-1, chosen, weights)
    share = (weights > 0).float().mean((0, 1))
    unevenness = EXPERTS / CHOSEN_EXPERTS * (share * probabilities.mean((0, 1))).sum()
    both = x.reshape(-1, HIDDEN) @ gate_up.reshape(HIDDEN, EXPERTS * 2 * width).to(x.dtype)
    gated, up = both.view(batch, tokens, EXPERTS, 2 * width).chunk(2, -1)
    active = F.silu(gated) * up * weights.to(x.dtype).unsqueeze(-1)
    flat = active.reshape(-1, EXPERTS * width) @ down.reshape(EXPERTS * width, HIDDEN).to(x.dtype)
    return flat.view(batch, tokens, HIDDEN), unevenness


class Losses(NamedTuple):
    main: Tensor
    drafts: list[Tensor]  # per depth
    unevenness: Tensor  # of all layers' experts


class TinyModel(nn.Module):
    def __init__(self, layers: int, make_layer: Callable[[int], nn.Module],
                 make_norm: Callable[[int], nn.Module], rotary: int, unscored: list[int]) -> None:
        """unscored: the tokens of an empty think block, which is part of a prompt."""
        super().__init__()
        self.unscored = unscored
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList([make_layer(index) for index in range(layers)])
        self.norm, self.head = make_norm(HIDDEN), linear(HIDDEN, VOCABULARY)
        self.draft_input = linear(2 * HIDDEN, HIDDEN)
        self.draft_embedding_norm, self.draft_hidden_norm = make_norm(HIDDEN), make_norm(HIDDEN)
        self.draft_layer, self.draft_norm = make_layer(layers - 1), make_norm(HIDDEN)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0, INITIAL_DEVIATION)
        frequencies = ROPE_THETA ** (-torch.arange(0, rotary, 2).float() / rotary)
        angles = torch.outer(torch.arange(POSITIONS_MAX).float(), frequencies)
        self.register_buffer("cosines", angles.cos().bfloat16(), persistent=False)
        self.register_buffer("sines", angles.sin().bfloat16(), persistent=False)

    def labels(self, tokens: Tensor) -> Tensor:
        count = len(self.unscored)
        starts = tokens.shape[1] - count + 1
        found = torch.ones(tokens.shape[0], starts, dtype=torch.bool, device=tokens.device)
        for offset, token in enumerate(self.unscored):
            found &= tokens[:, offset : starts + offset] == token
        labels = tokens.clone()
        for offset in range(count):
            window = slice(offset, starts + offset)
            labels[:, window] = labels[:, window].masked_fill(found, NOT_SCORED)
        return labels

    def trunk(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        hidden, unevenness = self.embed(tokens).bfloat16(), 0.0
        for layer in self.layers:
            hidden, of_layer = layer(hidden, self.cosines, self.sines)
            unevenness = unevenness + of_layer
        return self.norm(hidden), unevenness

    def draft(self, hidden: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """From the hidden states of one depth and the tokens that follow, those of the next."""
        embedded = self.draft_embedding_norm(self.embed(tokens).bfloat16())
        inputs = torch.cat([embedded, self.draft_hidden_norm(hidden)], -1)
        hidden, unevenness = self.draft_layer(self.draft_input(inputs), self.cosines, self.sines)
        return self.draft_norm(hidden), unevenness

    def loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        logits = self.head(hidden).float().flatten(0, 1)
        return F.cross_entropy(logits, labels.flatten(), ignore_index=NOT_SCORED)

    def forward(self, tokens: Tensor) -> Losses:
        hidden, unevenness = self.trunk(tokens[:, :-1])
        labels = self.labels(tokens)
        main, drafts = self.loss(hidden, labels[:, 1:]), []
        for depth in DRAFT_DEPTHS:
            hidden, of_draft = self.draft(hidden[:, :-1], tokens[:, depth:-1])
            unevenness = unevenness + of_draft
            drafts.append(self.loss(hidden, labels[:, depth + 1 :]))
        return Losses(main, drafts, unevenness)
