"""Training text: the corpus and what is held out of it, the tokenizer trained on it, and rows of
tokens."""

import json
import pathlib
import random
import re
from typing import NamedTuple

import torch
from tokenizers import Tokenizer, pre_tokenizers, trainers

from _log import log

VOCABULARY = 4096
POSITIONS_MAX = 8192
ROW_TOKENS = 2048
HELD_OUT_PROSE, HELD_OUT_CHATS = 64, 512
TOKENIZER_CHATS = 40000
PROSE_REPETITIONS = 4
SPECIAL = re.compile(r"<\|[a-z_]+\|>|</?(think|tool_call|tool_response)>")
EMPTY_THOUGHT = "<think>\n\n</think>\n\n"


class Texts(NamedTuple):
    prose: list[str]
    chats: list[str]
    held_out_prose: list[str]
    held_out_chats: list[str]


class Vocabulary(NamedTuple):
    tokenizer: Tokenizer
    end_of_text: int
    end_of_turn: int

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text).ids

    def pack(self, texts: list[str]) -> torch.Tensor:
        """Texts one after another in rows of one token more than a model sees; what is left of the
        text at the end of a row is dropped."""
        rows, row = [], []
        for encoded in self.tokenizer.encode_batch(texts):
            row += encoded.ids + [self.end_of_text]
            if len(row) >= ROW_TOKENS + 1:
                rows.append(row[: ROW_TOKENS + 1])
                row = []
        return torch.tensor(rows, dtype=torch.long)


class Rows(NamedTuple):
    chats: torch.Tensor
    prose: torch.Tensor
    held_out_prose: torch.Tensor
    held_out_chats: torch.Tensor


def read_texts(corpus: pathlib.Path) -> Texts:
    with open(corpus) as file:
        documents = [json.loads(line) for line in file]
    prose, chats = [], []
    for document in documents:
        (prose if document["kind"].startswith("prose") else chats).append(document["text"])
    random.shuffle(prose)
    return Texts(prose[HELD_OUT_PROSE:], chats[HELD_OUT_CHATS:],
                 prose[:HELD_OUT_PROSE], chats[:HELD_OUT_CHATS])


def train_tokenizer(texts: Texts, qwen_tokenizer: pathlib.Path, qwen_config: pathlib.Path,
                    output: pathlib.Path) -> Vocabulary:
    """Keeps the rules, added tokens and chat template of Qwen3 and learns a smaller vocabulary;
    added tokens come after it. Writes tokenizer.json and tokenizer_config.json."""
    qwen = json.loads(qwen_tokenizer.read_text())
    learned_count = VOCABULARY - len(qwen["added_tokens"])
    rules = {**qwen, "added_tokens": [], "model": {**qwen["model"], "vocab": {}, "merges": []}}
    tokenizer = Tokenizer.from_str(json.dumps(rules))
    trainer = trainers.BpeTrainer(
        vocab_size=learned_count, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False, special_tokens=[])
    chats = [SPECIAL.sub("\n", chat) for chat in random.sample(texts.chats, TOKENIZER_CHATS)]
    tokenizer.train_from_iterator(chats + texts.prose * 2, trainer)
    learned = json.loads(tokenizer.to_str())
    assert len(learned["model"]["vocab"]) == learned_count, len(learned["model"]["vocab"])
    learned["added_tokens"] = [{**token, "id": learned_count + index}
                               for index, token in enumerate(qwen["added_tokens"])]
    path = output / "tokenizer.json"
    path.write_text(json.dumps(learned, ensure_ascii=False))
    tokenizer = Tokenizer.from_file(str(path))

    numbers = {token["content"]: token["id"] for token in learned["added_tokens"]}
    assert tokenizer.token_to_id("<|im_end|>") == numbers["<|im_end|>"]
    config = json.loads(qwen_config.read_text())
    config["added_tokens_decoder"] = {str(numbers[token["content"]]): token
                                      for token in config["added_tokens_decoder"].values()}
    config["model_max_length"] = POSITIONS_MAX
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (output / "tokenizer_config.json").write_text(text)
    log("tokenizer", learned_count, "added", len(numbers))
    return Vocabulary(tokenizer, numbers["<|endoftext|>"], numbers["<|im_end|>"])


def make_rows(texts: Texts, vocabulary: Vocabulary) -> Rows:
    chats = vocabulary.pack(texts.chats)
    prose = torch.cat([vocabulary.pack(random.sample(texts.prose, len(texts.prose)))
                       for _ in range(PROSE_REPETITIONS)])
    rows = Rows(chats, prose, vocabulary.pack(texts.held_out_prose),
                vocabulary.pack(texts.held_out_chats))
    log("rows", *map(len, rows), "tokens M", len(chats) * ROW_TOKENS / 1e6)
    return rows
