"""The command that both trainers are: from a corpus to a checkpoint that has been tried out."""

import argparse
import pathlib
import random
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from _checkpoint import save_configs, save_validation, save_weights, shared_tensors
from _log import log
from _model import TinyModel
from _text import EMPTY_THOUGHT, Vocabulary, make_rows, read_texts, train_tokenizer
from _training import Step, step_of, train, validate

SEED = 7


class Architecture(NamedTuple):
    make_model: Callable[[list[int]], TinyModel]  # of the tokens that are not scored
    compiled: Callable[[TinyModel, Step], Step]
    layer_tensors: Callable[[str, torch.nn.Module], dict[str, Tensor]]  # of a prefix and a layer
    config: Callable[[Vocabulary], dict]
    log_interval: int  # steps
    compared_tokens: int  # with transformers


def parse_arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("corpus", type=pathlib.Path, help="what make_corpus.py wrote")
    parser.add_argument("qwen_tokenizer", type=pathlib.Path, help="tokenizer.json of Qwen3")
    parser.add_argument("qwen_config", type=pathlib.Path, help="its tokenizer_config.json")
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("seconds", type=float, help="of training")
    parser.add_argument("--steps", type=int, help="stop after so many, and log each")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu, which does not compile")
    return parser.parse_args()


def run(description: str, architecture: Architecture) -> None:
    arguments = parse_arguments(description)
    output, device = arguments.output, torch.device(arguments.device)
    output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    random.seed(SEED)
    texts = read_texts(arguments.corpus)
    vocabulary = train_tokenizer(texts, arguments.qwen_tokenizer, arguments.qwen_config, output)
    unscored = vocabulary.encode(EMPTY_THOUGHT)
    assert len(unscored) == 4, unscored
    rows = make_rows(texts, vocabulary)

    model = architecture.make_model(unscored).to(device)
    step = step_of(model)
    if device.type == "cuda":
        step = architecture.compiled(model, step)
    train(model, step, rows, arguments.seconds, arguments.steps, architecture.log_interval)
    validate(model, rows)

    tensors = shared_tensors(model)
    for index, layer in enumerate(model.layers):
        tensors |= architecture.layer_tensors(f"model.layers.{index}", layer)
    tensors |= architecture.layer_tensors("mtp.layers.0", model.draft_layer)
    save_weights(output, tensors)
    save_configs(output, architecture.config(vocabulary), vocabulary)
    save_validation(output, texts)

    from _trial import try_out  # transformers is slow to load
    try_out(output, model, vocabulary, texts,
            rows.held_out_chats[:2, : architecture.compared_tokens])
    log("done")
