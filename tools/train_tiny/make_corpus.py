"""Writes the text that the tiny models are trained on: prose, then chats, then stories.

    python3 tools/train_tiny/make_corpus.py TOKENIZER_CONFIG BOOKS FACTBOOK OUTPUT CHATS_COUNT
Every line of OUTPUT is {"text": ..., "kind": ...}. The same arguments make the same bytes.
"""

import argparse
import json
import pathlib
import random
import re
from collections.abc import Iterator

from _chats import chat, load_template
from _prose import passages
from _stories import story

SEED = 20261201
FILLER_CHARACTERS = 500
CHATS_PER_STORY = 12


def documents(arguments: argparse.Namespace) -> Iterator[dict[str, str]]:
    draw = random.Random(SEED)
    template = load_template(arguments.tokenizer_config)
    filler = []
    for source, text in passages(arguments.books, arguments.factbook):
        yield {"text": text, "kind": f"prose:{source}"}
        filler += [re.sub(r"\s+", " ", text[start : start + FILLER_CHARACTERS])
                   for start in range(0, len(text) - FILLER_CHARACTERS, FILLER_CHARACTERS)]
    for _ in range(arguments.chats_count):
        yield {"text": chat(draw, template, filler), "kind": "chat"}
    for _ in range(arguments.chats_count // CHATS_PER_STORY):
        yield {"text": story(draw), "kind": "story"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizer_config", type=pathlib.Path,
                        help="tokenizer_config.json of Qwen3, for its chat template")
    parser.add_argument("books", type=pathlib.Path, help="a folder of *.txt")
    parser.add_argument("factbook", type=pathlib.Path, help="a folder of REGION/COUNTRY.json")
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("chats_count", type=int)
    arguments = parser.parse_args()
    prose_count = 0
    with open(arguments.output, "w") as file:
        for document in documents(arguments):
            file.write(json.dumps(document, ensure_ascii=False) + "\n")
            prose_count += document["kind"].startswith("prose")
    print("prose docs", prose_count, "bytes", arguments.output.stat().st_size)


if __name__ == "__main__":
    main()
