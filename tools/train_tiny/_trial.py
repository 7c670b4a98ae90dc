"""Loads the checkpoint with transformers, compares the logits, and asks the model something."""

import pathlib
import random

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from _log import log
from _model import TinyModel
from _text import EMPTY_THOUGHT, Texts, Vocabulary

QUESTIONS = [
    ("Hello", False),
    ("What is the capital of France?", False),
    ("What is 12 + 30?", False),
    ("What is 457 + 268?", True),
    ("Sort these numbers: 45, 12, 78, 3", False),
    ("Repeat after me: red lamp tiny fox harbor", False),
    ("Tell me a story about a fox.", False),
    ("Who are you?", True),
    ("The secret code of Anna is 4821. " + "Once upon a time there was a fox. " * 60
     + "What is the secret code of Anna?", False),
    ("How do you say water in French?", False),
    ("Count from 3 to 12.", False),
]
SUMS, RECALLS, RECALL_LENGTHS = 100, 20, (5, 20, 60, 120)


class Trial:
    def __init__(self, folder: pathlib.Path, vocabulary: Vocabulary, device: torch.device) -> None:
        self.vocabulary, self.device = vocabulary, device
        loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        self.loaded = loaded.to(device).eval()

    def compare(self, model: TinyModel, tokens: Tensor) -> None:
        tokens = tokens.to(self.device)
        theirs = self.loaded(tokens).logits.float()
        with torch.autocast(self.device.type, torch.bfloat16):
            ours = model.head(model.trunk(tokens)[0]).float()
        agrees = theirs.argmax(-1) == ours.argmax(-1)
        log("transformers vs trainer rel", ((theirs - ours).norm() / theirs.norm()).item(),
            "argmax agree", agrees.float().mean().item())

    def answer(self, prompt: str, tokens_max: int) -> str:
        ends = [self.vocabulary.end_of_turn, self.vocabulary.end_of_text]
        tokens = torch.tensor([self.vocabulary.encode(prompt)]).to(self.device)
        answered = self.loaded.generate(tokens, max_new_tokens=tokens_max, do_sample=False,
                                        eos_token_id=ends, pad_token_id=ends[1])
        text = self.vocabulary.tokenizer.decode(answered[0].tolist(), skip_special_tokens=False)
        return text[len(prompt) :]

    def ask(self) -> None:
        for question, thinks in QUESTIONS:
            log(repr(question[:60]), "->", repr(self.answer(prompt_of(question, thinks), 160)))

    def sums(self) -> None:
        right = 0
        for _ in range(SUMS):
            left, other = random.randint(0, 99), random.randint(0, 99)
            answer = self.answer(prompt_of(f"What is {left} + {other}?"), 24)
            right += f"= {left + other}" in answer.split("<|im_end|>")[0][-8:]
        log("2-digit sums right", right, "of", SUMS)

    def recalls(self, prose: list[str], length: int) -> None:
        """A code hidden in prose: is it found?"""
        found = 0
        for _ in range(RECALLS):
            code = str(random.randint(1000, 9999))
            filler = random.choice(prose)[:600] * (length // 5)
            cut = random.randint(0, 3) * len(filler) // 4
            prompt = prompt_of(f"{filler[:cut]} The secret code of Anna is {code}. "
                               f"{filler[cut:][: length * 60]} What is the secret code of Anna?")
            found += code in self.answer(prompt, 24)
        log("recall", length, "prompt tokens", len(self.vocabulary.encode(prompt)),
            "found", found, "of", RECALLS)


def prompt_of(question: str, thinks: bool = False) -> str:
    opening = "" if thinks else EMPTY_THOUGHT
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{opening}"


@torch.no_grad()
def try_out(folder: pathlib.Path, model: TinyModel, vocabulary: Vocabulary, texts: Texts,
            tokens: Tensor) -> None:
    trial = Trial(folder, vocabulary, model.head.weight.device)
    trial.compare(model, tokens)
    trial.ask()
    trial.sums()
    for length in RECALL_LENGTHS:
        trial.recalls(texts.held_out_prose, length)
