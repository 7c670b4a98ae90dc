"""A model as a Hugging Face checkpoint: two shards and their index, configs, held-out text."""

import json
import pathlib

import torch
from safetensors.torch import save_file
from torch import Tensor

from _model import TinyModel
from _text import Texts, Vocabulary

SHARDS = 2
VALIDATION_CHATS, VALIDATION_PROSE = 200, 16
STORED_BYTES = 2  # per weight; the few in f32 count as bf16 too


def stored(weight: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return weight.detach().to(dtype).cpu().contiguous()


def shared_tensors(model: TinyModel) -> dict[str, Tensor]:
    """All but the layers."""
    return {
        "model.embed_tokens.weight": stored(model.embed.weight),
        "lm_head.weight": stored(model.head.weight),
        "model.norm.weight": stored(model.norm.weight),
        "mtp.fc.weight": stored(model.draft_input.weight),
        "mtp.pre_fc_norm_embedding.weight": stored(model.draft_embedding_norm.weight),
        "mtp.pre_fc_norm_hidden.weight": stored(model.draft_hidden_norm.weight),
        "mtp.norm.weight": stored(model.draft_norm.weight),
    }


def save_weights(output: pathlib.Path, tensors: dict[str, Tensor]) -> None:
    half = sum(tensor.numel() * STORED_BYTES for tensor in tensors.values()) / SHARDS
    shards: list[dict[str, Tensor]] = [{} for _ in range(SHARDS)]
    size = 0
    for name in sorted(tensors):
        shards[0 if size < half else 1][name] = tensors[name]
        size += tensors[name].numel() * STORED_BYTES
    places = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        save_file(shard, output / file, metadata={"format": "pt"})
        places.update({name: file for name in shard})
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (output / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def save_configs(output: pathlib.Path, config: dict, vocabulary: Vocabulary) -> None:
    generation = {
        "bos_token_id": vocabulary.end_of_text,
        "eos_token_id": [vocabulary.end_of_turn, vocabulary.end_of_text],
        "pad_token_id": vocabulary.end_of_text,
        "do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20,
    }
    (output / "config.json").write_text(json.dumps(config, indent=2))
    (output / "generation_config.json").write_text(json.dumps(generation, indent=2))


def save_validation(output: pathlib.Path, texts: Texts) -> None:
    held_out = {"chat": texts.held_out_chats[:VALIDATION_CHATS],
                "prose": texts.held_out_prose[:VALIDATION_PROSE]}
    text = json.dumps(held_out, ensure_ascii=False, indent=0)
    (output / "validation.json").write_text(text)
