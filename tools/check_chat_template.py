#!/usr/bin/env python3
"""Compares the chat templates with transformers' apply_chat_template on random conversations.

Makes a case file (see chat_cases.py) and runs text_test on it, which prints every mismatch of the
native renderer and of the Jinja helper. Needs transformers.

Usage: tools/check_chat_template.py [--test build/release/src/text/text_test] [--seed N]
                                    [--cases N] [--template NAME] [--golden PATH] [models/tiny-moe]

The committed files: --cases 7 --template qwen3 --golden src/text/testdata/chat_qwen3.jsonl
                     --cases 4 --golden src/text/testdata/chat_others.jsonl
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import chat_cases
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent


def write_cases(path, model, seed, count, wanted):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    tokenizer_path = f"{os.path.relpath(model, ROOT)}/tokenizer.json"
    refused, total = 0, -1
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for line in chat_cases.cases(tokenizer, tokenizer_path, seed, count, wanted):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            refused += line.get("text", "") is None
            total += 1
    print(f"{total} conversations, of which transformers refuses {refused}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--test", default=ROOT / "build/release/src/text/text_test")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--cases", type=int, default=500, help="conversations per template")
    parser.add_argument("--template", help="only this template of chat_cases.py")
    parser.add_argument("--golden", help="only write the case file there")
    parser.add_argument("model", nargs="?", default=ROOT / "models/tiny-moe")
    arguments = parser.parse_args()
    what = (arguments.model, arguments.seed, arguments.cases, arguments.template)
    if arguments.golden:
        write_cases(arguments.golden, *what)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/cases.jsonl"
        write_cases(path, *what)
        result = subprocess.run(
            [pathlib.Path(arguments.test).resolve(), "--gtest_filter=*ChatTemplateParity*"],
            cwd=ROOT,
            env=os.environ | {"TANDEM_CHAT_CASES": path},
        )
    sys.exit(result.returncode)


if __name__ == "__main__":
    main()
