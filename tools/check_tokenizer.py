#!/usr/bin/env python3
"""Compares the tokenizer with the `tokenizers` library on many random texts.

For each tokenizer.json it makes one case file per split rule (see tokenizer_cases.py): random
texts, every code point between neighbours that it may join or split, the sources of this
repository, and every token alone. Then it runs text_test on them.

Usage: tools/check_tokenizer.py [--test build/release/src/text/text_test] [--seed N] [--texts N]
                                tokenizer.json...
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import tokenizer_cases

ROOT = pathlib.Path(__file__).resolve().parent.parent


def write_cases(path, source, replacements, seed, texts_count):
    """Returns how many texts and how many token sequences it wrote."""
    tokenizer, without = tokenizer_cases.load(source, replacements)
    texts, sequences = 0, 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:

        def write(case):
            nonlocal texts, sequences
            texts += "text" in case
            sequences += "text" not in case
            file.write(tokenizer_cases.dump(case) + "\n")

        file.write(tokenizer_cases.dump(tokenizer_cases.header(source, replacements, seed)) + "\n")
        for case in tokenizer_cases.random_cases(tokenizer, without, seed, texts_count):
            write(case)
        scalars = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
        for start in range(0, len(scalars), 64):
            block = scalars[start : start + 64]
            text = "".join(f"a{c}b {c}\u0323\u0301{c}\n{c}1" for c in block)
            write(tokenizer_cases.encode_case(tokenizer, without, text))
        for repository_file in sorted((ROOT / "src").rglob("*.cc")):
            text = repository_file.read_text(encoding="utf-8")
            write(tokenizer_cases.encode_case(tokenizer, without, text))
        # The last id has no token.
        for token_id in range(tokenizer.get_vocab_size(with_added_tokens=True) + 1):
            write(tokenizer_cases.decode_case(tokenizer, [token_id]))
    return texts, sequences


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--test", default=ROOT / "build/release/src/text/text_test")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--texts", type=int, default=20000, help="random texts per case file")
    parser.add_argument("tokenizers", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for source in arguments.tokenizers:
            for rule, replacements in [("as it is", []), ("Qwen3.5", tokenizer_cases.QWEN3_MARKS)]:
                paths.append(f"{folder}/{len(paths)}.jsonl")
                texts, sequences = write_cases(
                    paths[-1], source.resolve(), replacements, arguments.seed, arguments.texts
                )
                print(f"{source}, split rule {rule}: {texts} texts, {sequences} sequences", flush=True)
        result = subprocess.run(
            [pathlib.Path(arguments.test).resolve(), "--gtest_filter=*TokenizerParity*"],
            cwd=ROOT,
            env=os.environ | {"TANDEM_TOKENIZER_CASES": ":".join(paths)},
        )
    sys.exit(result.returncode)


if __name__ == "__main__":
    main()
