"""transformers as the reference: logits, routed experts, greedy output and nats of one model."""

import logging
import os
import pathlib
from dataclasses import dataclass

import numpy
import torch
import transformers

logging.disable(logging.WARNING)
transformers.utils.logging.disable_progress_bar()
os.environ["HF_HUB_OFFLINE"] = "1"

DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
ASSISTANT = "<|im_start|>assistant\n"
NO_THOUGHT = "<think>\n\n</think>\n\n"
NEW_TOKENS_MAX = 128


@dataclass
class Scored:
    logits: numpy.ndarray   # [tokens, vocabulary], float64
    experts: numpy.ndarray  # [tokens, layers with experts, k], ascending ids

    def differs_from(self, other: "Scored") -> numpy.ndarray:
        """[tokens]: whether any layer chose another set of experts."""
        return (self.experts != other.experts).any(axis=(1, 2))


class Reference:
    """One checkpoint at one precision. Its config is read by transformers as it stands in the
    folder. Experts run one by one: other ways group them, with sums of another order."""

    def __init__(self, folder: pathlib.Path, dtype: str):
        self.folder = folder
        self.model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=DTYPES[dtype], experts_implementation="eager", output_loading_info=True)
        self.model.eval()
        unread = [key for key in info["unexpected_keys"] if not key.startswith("mtp.")]
        bad = [*info["missing_keys"], *unread, *info["mismatched_keys"]]
        assert not bad, f"{folder}: transformers did not load {bad}"

    @torch.no_grad()
    def score(self, tokens: list[int]) -> Scored:
        chosen = []

        def note(_module, _inputs, output):
            chosen.append(output[2].sort(dim=-1).values.numpy())

        hooks = [module.register_forward_hook(note) for name, module in self.model.named_modules()
                 if type(module).__name__ == "Qwen3MoeTopKRouter"]
        logits = self.model(torch.tensor([tokens])).logits[0].double().numpy()
        for hook in hooks:
            hook.remove()
        empty = numpy.zeros((len(tokens), 0, 0), dtype=numpy.int64)
        return Scored(logits, numpy.stack(chosen, axis=1) if chosen else empty)

    @torch.no_grad()
    def greedy(self, prompt: list[int], stops: list[int]) -> tuple[list[int], list[float]]:
        """New tokens, the stop token included, and how far each was above the second."""
        output = self.model.generate(
            torch.tensor([prompt]), do_sample=False, max_new_tokens=NEW_TOKENS_MAX,
            eos_token_id=stops, pad_token_id=stops[0], output_logits=True,
            return_dict_in_generate=True)
        gaps = []
        for logits in output.logits:
            top = logits[0].topk(2).values
            gaps.append((top[0] - top[1]).item())
        return output.sequences[0, len(prompt):].tolist(), gaps

    @torch.no_grad()
    def nats(self, tokens: list[int]) -> float:
        """Sum over all tokens but the first of -log of their probability, in double."""
        logits = self.model(torch.tensor([tokens])).logits[0, :-1].double()
        chosen = torch.tensor(tokens[1:]).unsqueeze(1)
        return -torch.log_softmax(logits, dim=-1).gather(1, chosen).sum().item()


def chat_prompt(text: str) -> str:
    """The transcript up to where its last answer starts, an empty thought included."""
    end = text.rindex(ASSISTANT) + len(ASSISTANT)
    return text[:end] + (NO_THOUGHT if text.startswith(NO_THOUGHT, end) else "")


def stop_tokens(folder: pathlib.Path) -> list[int]:
    ids = transformers.GenerationConfig.from_pretrained(folder).eos_token_id
    return ids if isinstance(ids, list) else [ids]
