#!/usr/bin/env python3
"""Prints how far Tandem's logits are from those of transformers: the table of docs/parity.md.

Every row of every prompt of every checkpoint of tools/golden/_parity_cases.py and of tiny-moe, in
f32 and bf16, against transformers in float64; then what the tests say of greedy answers and nats.
Needs what makes goldens (tools/golden/requirements.txt) and a release build.

Usage: tools/check_parity.py [--build build/release] [--only NAME] [--seeds N]
"""

import argparse
import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/golden"))

import numpy  # noqa: E402  (the path must be set first)
import parity  # noqa: E402
import transformers  # noqa: E402
from _parity_cases import CASES  # noqa: E402
from _random_weights import write_weights  # noqa: E402
from _reference import Scored  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

HEADER = (f"{'checkpoint':<22} {'rows':>5}  {'f32 ours':>8} {'HF f32':>8} {'between':>8}  "
          f"{'bf16 ours':>9} {'HF bf16':>8} {'ratio':>6}  {'moved: ours':>11} {'HF':>4}  "
          f"{'unmoved':>7} {'before: rows':>12} {'ours':>7} {'HF':>7} {'ratio':>6}")


def run_ours(program: pathlib.Path, folder: pathlib.Path, dtype: str, prompts) -> list[Scored]:
    # A file of its own for every run: load_file maps it, and reads when a tensor is used.
    with tempfile.TemporaryDirectory() as scratch:
        tokens, out = pathlib.Path(scratch, "tokens.json"), pathlib.Path(scratch, "out.safetensors")
        tokens.write_text(json.dumps({"prompts": prompts}))
        subprocess.run([program, "logits", folder, "--dtype", dtype, "--tokens", tokens,
                        "--out", out], check=True)
        made = load_file(out)
        return [Scored(made[f"logits.{i}"].astype(numpy.float64), made[f"experts.{i}"])
                for i in range(len(prompts))]


def relative(runs: list[Scored], oracle: list[Scored], masks=None) -> float:
    """Frobenius error over all rows (or those of the masks) of all prompts together."""
    masks = masks or [slice(None)] * len(runs)
    error = sum(((run.logits - exact.logits)[mask] ** 2).sum()
                for run, exact, mask in zip(runs, oracle, masks))
    norm = sum((exact.logits[mask] ** 2).sum() for exact, mask in zip(oracle, masks))
    return float(numpy.sqrt(error / norm)) if norm else float("nan")


def worst(runs: list[Scored], oracle: list[Scored]) -> float:
    return max(relative([run], [exact]) for run, exact in zip(runs, oracle))


def row_of_table(name: str, program: pathlib.Path, folder: pathlib.Path, prompts) -> str:
    models = parity.references(folder)
    oracle, f32, bf16 = ([models[dtype].score(tokens) for tokens in prompts]
                         for dtype in ("f64", "f32", "bf16"))
    our_f32, our_bf16 = (run_ours(program, folder, dtype, prompts) for dtype in ("f32", "bf16"))
    our_moved = [a.differs_from(b) for a, b in zip(our_bf16, our_f32)]
    their_moved = [a.differs_from(b) for a, b in zip(bf16, f32)]
    moved = [ours | theirs for ours, theirs in zip(our_moved, their_moved)]
    unmoved = [~rows for rows in moved]
    # Rows after a moved one attend to it, so only those before it differ by rounding alone.
    before = [~numpy.logical_or.accumulate(rows) for rows in moved]
    ours, theirs = relative(our_bf16, oracle), relative(bf16, oracle)
    ratio_unmoved = relative(our_bf16, oracle, unmoved) / relative(bf16, oracle, unmoved)
    ours_before, theirs_before = (relative(run, oracle, before) for run in (our_bf16, bf16))
    return (f"{name:<22} {sum(map(len, prompts)):>5}  {worst(our_f32, oracle):>8.1e} "
            f"{worst(f32, oracle):>8.1e} {worst(our_f32, f32):>8.1e}  "
            f"{ours:>9.5f} {theirs:>8.5f} {ours / theirs:>6.3f}  "
            f"{sum(m.sum() for m in our_moved):>11} {sum(m.sum() for m in their_moved):>4}  "
            f"{ratio_unmoved:>7.3f} {sum(rows.sum() for rows in before):>12} "
            f"{ours_before:>7.5f} {theirs_before:>7.5f} {ours_before / theirs_before:>6.3f}")


def random_checkpoint(case, folder: pathlib.Path) -> list[list[int]]:
    """Writes the whole checkpoint of a case; returns its prompt."""
    shutil.copy(parity.GOLDEN / case.name / "config.json", folder)
    shutil.copy(parity.TINY_MOE / "tokenizer.json", folder)  # which a model folder must have
    config = transformers.AutoConfig.from_pretrained(folder)
    write_weights(folder, case, config)
    return [parity.random_prompt(case, config)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--only", help="one checkpoint")
    parser.add_argument("--seeds", type=int, default=1, help="of each random checkpoint")
    arguments = parser.parse_args()
    program = arguments.build.resolve() / "apps/tandem"

    print(f"transformers {transformers.__version__}, torch {parity.torch.__version__}")
    print("relative Frobenius errors; f32: of the worst prompt; bf16: of all rows together\n"
          "moved: rows that bf16 sent to other experts than f32; unmoved: ratio over the others;\n"
          "before: rows of a prompt before the first that moved on either side")
    print(HEADER)
    for case in CASES:
        if arguments.only not in (None, case.name):
            continue
        for seed in range(case.seed, case.seed + arguments.seeds):
            with tempfile.TemporaryDirectory() as scratch:
                folder = pathlib.Path(scratch)
                prompts = random_checkpoint(dataclasses.replace(case, seed=seed), folder)
                print(row_of_table(case.name, program, folder, prompts), flush=True)
    if arguments.only in (None, "tiny-moe"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(parity.TINY_MOE)
        prompts = parity.tiny_moe_prompts(tokenizer)
        print(row_of_table("tiny-moe", program, parity.TINY_MOE, prompts), flush=True)
        test = arguments.build.resolve() / "tests/parity/parity_test"
        subprocess.run([test, "--gtest_brief=1", "--gtest_filter=Long*"], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
