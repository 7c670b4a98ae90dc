"""A gated delta net as Qwen3.5 has it: a short convolution, then the gated delta rule in chunks."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _model import HIDDEN, linear, normalized

KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM = 4, 8, 32, 32
KERNEL, CHUNK = 4, 128  # tokens
KEYS, VALUES = KEY_HEADS * KEY_DIM, VALUE_HEADS * VALUE_DIM
NEVER = -1e30  # the logarithm of a decay of 0


@torch.compiler.disable
def delta_rule(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    """q, k [batch, tokens, heads, key]; v [batch, tokens, heads, value]; log_decay, beta [batch,
    tokens, heads]; all f32, tokens a multiple of CHUNK. The state starts at zero."""
    batch, tokens, heads, key_dim = q.shape
    chunks = tokens // CHUNK

    def chunked(x: Tensor) -> Tensor:
        return x.transpose(1, 2).reshape(batch * heads, chunks, CHUNK, *x.shape[3:])

    q, k, v, beta = chunked(q), chunked(k), chunked(v), chunked(beta)
    total = chunked(log_decay).cumsum(-1)
    causal = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~causal, NEVER).exp()
    # Within a chunk each update sees those before it: one triangular system solves all of them.
    seen = (beta[..., :, None] * (k @ k.transpose(-1, -2)) * decay).tril(-1)
    updates = torch.cat([beta[..., None] * v, (beta * total.exp())[..., None] * k], -1)
    solved = torch.linalg.solve_triangular(seen + torch.eye(CHUNK, device=q.device), updates,
                                           upper=False, unitriangular=True)
    values, keys = solved[..., : v.shape[-1]], solved[..., v.shape[-1] :]
    scores = (q @ k.transpose(-1, -2)) * decay
    decayed_q = q * total.exp()[..., None]
    decayed_k = (k * (total[..., -1:] - total).exp()[..., None]).transpose(-1, -2)
    last = total[..., -1].exp()[..., None, None]
    state, outputs = q.new_zeros(batch * heads, key_dim, v.shape[-1]), []
    for c in range(chunks):
        new = values[:, c] - keys[:, c] @ state
        outputs.append(torch.baddbmm(scores[:, c] @ new, decayed_q[:, c], state))
        state = torch.baddbmm(last[:, c] * state, decayed_k[:, c], new)
    return torch.stack(outputs, 1).reshape(batch, heads, tokens, -1).transpose(1, 2)


def unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


class DeltaNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        channels = 2 * KEYS + VALUES
        self.in_proj_qkv, self.in_proj_z = linear(HIDDEN, channels), linear(HIDDEN, VALUES)
        self.in_proj_b, self.in_proj_a = linear(HIDDEN, VALUE_HEADS), linear(HIDDEN, VALUE_HEADS)
        self.out_proj = linear(VALUES, HIDDEN)
        self.convolution = nn.Parameter(torch.randn(channels, 1, KERNEL) * 0.3)
        self.A_log = nn.Parameter(torch.log(torch.empty(VALUE_HEADS).uniform_(0.5, 8)))
        steps = torch.empty(VALUE_HEADS).uniform_(0.002, 0.1)
        self.dt_bias = nn.Parameter(torch.log(torch.expm1(steps)))
        self.norm = nn.Parameter(torch.ones(VALUE_DIM))

    def convolved(self, x: Tensor) -> Tensor:
        """Each channel over the last KERNEL tokens."""
        padded = F.pad(x.transpose(1, 2), (KERNEL - 1, 0))
        return F.conv1d(padded, self.convolution.to(x.dtype), groups=x.shape[-1]).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        mixed = self.in_proj_qkv(x)
        z, b, a = self.in_proj_z(x), self.in_proj_b(x), self.in_proj_a(x)
        q, k, v = F.silu(self.convolved(mixed)).split([KEYS, KEYS, VALUES], -1)
        group = VALUE_HEADS // KEY_HEADS
        q = unit(q.float().view(batch, tokens, KEY_HEADS, KEY_DIM)) * KEY_DIM**-0.5
        k = unit(k.float().view(batch, tokens, KEY_HEADS, KEY_DIM))
        q, k = q.repeat_interleave(group, 2), k.repeat_interleave(group, 2)
        v = v.float().view(batch, tokens, VALUE_HEADS, VALUE_DIM)
        log_decay = -self.A_log.float().exp() * F.softplus(a.float() + self.dt_bias.float())
        with torch.autocast(x.device.type, enabled=False):
            y = delta_rule(q, k, v, log_decay, torch.sigmoid(b).float())
        gate = F.silu(z.float().view(batch, tokens, VALUE_HEADS, VALUE_DIM))
        y = self.norm.float() * normalized(y.to(x.dtype)) * gate
        return self.out_proj(y.to(x.dtype).reshape(batch, tokens, VALUES))
