"""Writes tests/parity/golden: what transformers answers, for tests that run without it.

    ./x golden parity
Logits are those of a float64 run, rounded to f32, with the squared error of transformers' own f32
and bf16 runs beside each row. Takes some minutes.
"""

import json
import pathlib
import shutil
import tempfile

import numpy
import torch
import transformers

import _random_weights
from _parity_cases import CASES
from _reference import Reference, chat_prompt, stop_tokens

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/parity/golden"
TINY_MOE = ROOT / "models/tiny-moe"
CHATS, PROSE, PROMPT_TOKENS_MAX = 12, 4, 512
FILE_BYTES_MAX = 64 << 10
METADATA = {"made_by": "./x golden parity", "torch": torch.__version__,
            "transformers": transformers.__version__, "numpy": numpy.__version__}
# Of a random checkpoint: one of each kind of shape whose bits the tests compare.
SAMPLED_WEIGHTS = ["model.layers.0.self_attn.k_norm.weight",
                   "model.layers.0.self_attn.k_proj.weight"]


def save(path: pathlib.Path, tensors: dict) -> None:
    _random_weights.save_tensors(path, tensors, METADATA)
    assert path.stat().st_size <= FILE_BYTES_MAX, f"{path} has {path.stat().st_size} bytes"


def expected(runs: dict[str, Reference], tokens: list[int], rows: list[int]) -> dict:
    oracle, f32, bf16 = (runs[dtype].score(tokens) for dtype in ("f64", "f32", "bf16"))
    logits = oracle.logits[rows]

    def squared_error(run):
        return ((run.logits[rows] - logits) ** 2).sum(axis=1)

    return {
        "tokens": numpy.array(tokens, numpy.int32),
        "rows": numpy.array(rows, numpy.int32),
        "logits": logits.astype(numpy.float32),
        "f32_squared_error": squared_error(f32),
        "bf16_squared_error": squared_error(bf16),
        "bf16_moved": bf16.differs_from(f32)[rows].astype(numpy.int32),
    }


def references(folder: pathlib.Path) -> dict[str, Reference]:
    return {dtype: Reference(folder, dtype) for dtype in ("f64", "f32", "bf16")}


def random_prompt(case, config) -> list[int]:
    generator = numpy.random.default_rng(case.seed)
    return generator.integers(0, config.vocab_size, case.prompt_tokens).tolist()


def check_fused(case, config, folder: pathlib.Path, tokens: list[int]) -> None:
    """The tests fuse experts themselves; this says that transformers means the same by it."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(folder / "config.json", scratch)
        _random_weights.write_weights(pathlib.Path(scratch), case, config, fused=True)
        apart, together = (Reference(place, "f64").score(tokens).logits
                           for place in (folder, pathlib.Path(scratch)))
        assert (apart == together).all(), f"{case.name}: fused experts give other logits"


def make_random(case) -> None:
    folder = GOLDEN / case.name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(case.config, indent=2) + "\n")
    config = transformers.AutoConfig.from_pretrained(folder)
    _random_weights.write_weights(folder, case, config)
    tokens = random_prompt(case, config)
    tensors = expected(references(folder), tokens, list(range(len(tokens))))
    tensors["seed"] = numpy.array([case.seed], numpy.int64)
    if case.stored == "bf16":
        if config.model_type == "qwen3_moe":
            check_fused(case, config, folder, tokens)
        (folder / "model.safetensors").unlink()
        shapes = _random_weights.tensor_shapes(config)
        for name in SAMPLED_WEIGHTS:
            bits = _random_weights.bf16_bits(case.seed, name, shapes[name])
            tensors["bits." + name] = bits[:8].astype(numpy.uint16)
    save(folder / "expected.safetensors", tensors)


def tiny_moe_prompts(tokenizer) -> list[list[int]]:
    texts = json.loads((TINY_MOE / "validation.json").read_text())
    chosen = texts["chat"][:CHATS] + texts["prose"][:PROSE]
    return [tokenizer.encode(text)[:PROMPT_TOKENS_MAX] for text in chosen]


def make_tiny_moe() -> None:
    folder = GOLDEN / "tiny-moe"
    folder.mkdir(parents=True)
    runs = references(TINY_MOE)
    tokenizer = transformers.AutoTokenizer.from_pretrained(TINY_MOE)
    for number, tokens in enumerate(tiny_moe_prompts(tokenizer)):
        count = len(tokens)
        rows = [count // 3, 2 * count // 3, count - 1]
        save(folder / f"logits-{number:02}.safetensors", expected(runs, tokens, rows))

    texts = json.loads((TINY_MOE / "validation.json").read_text())
    nats = {}
    for group in ("chat", "prose"):
        encoded = [tokenizer.encode(text) for text in texts[group]]
        nats[group + "_nats"] = numpy.array([runs["f32"].nats(tokens) for tokens in encoded])
        nats[group + "_tokens"] = numpy.array([len(tokens) - 1 for tokens in encoded], numpy.int32)
    save(folder / "eval.safetensors", nats)

    stops = stop_tokens(TINY_MOE)
    answers, gaps, lengths = [], [], []
    for text in texts["chat"]:
        tokens, margins = runs["f32"].greedy(tokenizer.encode(chat_prompt(text)), stops)
        answers += tokens
        gaps += margins
        lengths.append(len(tokens))
    save(folder / "greedy.safetensors", {
        "stop_tokens": numpy.array(stops, numpy.int32),
        "tokens": numpy.array(answers, numpy.int32),
        "lengths": numpy.array(lengths, numpy.int32),
        "gaps": numpy.array(gaps, numpy.float32)})


def main() -> None:
    if GOLDEN.exists():
        shutil.rmtree(GOLDEN)
    for case in CASES:
        print(case.name, flush=True)
        make_random(case)
    print("tiny-moe, some minutes", flush=True)
    make_tiny_moe()
    total = sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.is_file())
    print(f"{GOLDEN.relative_to(ROOT)}: {total} bytes")


if __name__ == "__main__":
    main()
