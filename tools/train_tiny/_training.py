"""The training loop, for a given time, and what the model then reaches on held-out text."""

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from _log import log
from _model import DRAFT_DEPTHS, Losses, TinyModel
from _text import ROW_TOKENS, Rows

BATCH_ROWS = 32
PROSE_ROWS = BATCH_ROWS // 16  # of a batch
LEARNING_RATE, WARM_UP_STEPS, LAST_RATE_SHARE = 3e-3, 200, 0.02
DRAFT_SHARES, UNEVENNESS_SHARE = (0.3, 0.15, 0.1), 0.01  # of the loss, the main loss being 1
UNTIMED_STEPS = 3  # they compile
Step = Callable[[Tensor], tuple[Tensor, Losses]]


def step_of(model: TinyModel) -> Step:
    """The loss to descend, and its parts."""
    def step(tokens: Tensor) -> tuple[Tensor, Losses]:
        with torch.autocast(tokens.device.type, torch.bfloat16):
            losses = model(tokens)
        loss = losses.main
        for share, draft in zip(DRAFT_SHARES, losses.drafts):
            loss = loss + share * draft
        return loss + UNEVENNESS_SHARE * losses.unevenness, losses

    return step


def make_optimizer(model: TinyModel) -> torch.optim.Optimizer:
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.95), fused=True)


def learning_rate(step: int, progress: float) -> float:
    warm = min(1.0, (step + 1) / WARM_UP_STEPS)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return LEARNING_RATE * warm * (LAST_RATE_SHARE + (1 - LAST_RATE_SHARE) * cosine)


class Batches:
    """Chats in random order, each once per round, and some rows of prose."""

    def __init__(self, rows: Rows, device: torch.device) -> None:
        self.chats, self.prose = rows.chats.to(device), rows.prose.to(device)
        self.order, self.position = torch.randperm(len(self.chats)), 0

    def next(self) -> Tensor:
        count, device = BATCH_ROWS - PROSE_ROWS, self.chats.device
        if self.position + count > len(self.chats):
            self.order, self.position = torch.randperm(len(self.chats)), 0
        chosen = self.order[self.position : self.position + count].to(device)
        prose = torch.randint(len(self.prose), (PROSE_ROWS,)).to(device)
        self.position += count
        return torch.cat([self.chats[chosen], self.prose[prose]])


def train(model: TinyModel, step: Step, rows: Rows, seconds: float, steps_max: int | None,
          log_interval: int) -> None:
    """For `seconds` after the steps that compile, or `steps_max` steps."""
    log("params M", sum(weight.numel() for weight in model.parameters()) / 1e6)
    optimizer = make_optimizer(model)
    batches = Batches(rows, model.head.weight.device)
    start, done = None, 0
    while done != steps_max:
        elapsed = 0 if start is None else time.time() - start
        if start and elapsed > seconds:
            break
        tokens = batches.next()
        rate = learning_rate(done, min(1.0, elapsed / seconds))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, losses = step(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        done += 1
        if done == UNTIMED_STEPS:
            losses.main.item()  # waits for the device
            start = time.time()
        if done % log_interval == 0 or steps_max:
            log(done, "main", round(losses.main.item(), 3),
                "mtp", [round(draft.item(), 3) for draft in losses.drafts], "lr", f"{rate:.2e}")
    log("trained", done, "steps", done * BATCH_ROWS * ROW_TOKENS / 1e6, "Mtok")


@torch.no_grad()
def validate(model: TinyModel, rows: Rows) -> None:
    """Losses on held-out text, and how often a draft agrees with the trunk, teacher-forced."""
    model.eval()
    device = model.head.weight.device
    with torch.autocast(device.type, torch.bfloat16):
        for name, held_out in (("prose", rows.held_out_prose), ("chat", rows.held_out_chats)):
            losses = [model(part.to(device)) for part in held_out.split(8)]
            log("val", name, "main", sum(each.main.item() for each in losses) / len(losses), "mtp",
                [sum(each.drafts[index].item() for each in losses) / len(losses)
                 for index in range(len(DRAFT_DEPTHS))])
        tokens = rows.held_out_chats[:16].to(device)
        hidden, _ = model.trunk(tokens[:, :-1])
        expected = model.head(hidden).argmax(-1)
        for depth in DRAFT_DEPTHS:
            hidden, _ = model.draft(hidden[:, :-1], tokens[:, depth:-1])
            agrees = model.head(hidden).argmax(-1) == expected[:, depth:]
            log("draft depth", depth, "agreement", agrees.float().mean().item())
