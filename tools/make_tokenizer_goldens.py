#!/usr/bin/env python3
"""Writes the case files src/text/testdata/*.jsonl, which tokenizer_parity_test.cc checks.

They say what the `tokenizers` library makes of random texts with the tokenizer of tiny-moe: as it
is, with the split rule of Qwen3.5, and with added tokens that have every supported flag.

Usage: tools/make_tokenizer_goldens.py [--seed N]
"""

import argparse
import os
import pathlib

import tokenizer_cases

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENIZER = "models/tiny-moe/tokenizer.json"
FILE_BYTES_MAX = 60 << 10


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    seed = parser.parse_args().seed
    os.chdir(ROOT)
    for name, replacements in [
        ("qwen3", []),
        ("qwen35", tokenizer_cases.QWEN3_MARKS),
        ("flags", tokenizer_cases.flagged_tokens(4096)),
    ]:
        tokenizer, without = tokenizer_cases.load(TOKENIZER, replacements)
        lines = [tokenizer_cases.dump(tokenizer_cases.header(TOKENIZER, replacements, seed))]
        size = 0
        for case in tokenizer_cases.random_cases(tokenizer, without, seed, 10000, pieces_max=8):
            line = tokenizer_cases.dump(case)
            size += len(line.encode()) + 1
            if size > FILE_BYTES_MAX:
                break
            lines.append(line)
        path = ROOT / f"src/text/testdata/tokenizer_{name}.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
        print(f"{path}: {len(lines) - 1} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
