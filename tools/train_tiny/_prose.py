"""Public-domain prose in passages of about 2,500 characters: books, and the CIA Factbook."""

import json
import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

PASSAGE_CHARACTERS = 2500
PARAGRAPH_CHARACTERS_MIN = 40  # shorter ones are headings and page numbers
LAST_FACTS_CHARACTERS_MIN = 200


class Passage(NamedTuple):
    source: str
    text: str


def passages_of_book(path: pathlib.Path) -> Iterator[Passage]:
    paragraphs = re.split(r"\n\s*\n", path.read_text(encoding="utf-8", errors="ignore"))
    text = ""
    for paragraph in paragraphs:
        paragraph = paragraph.strip()
        if len(paragraph) <= PARAGRAPH_CHARACTERS_MIN:
            continue
        text += ("\n\n" if text else "") + re.sub(r"[ \t]*\n[ \t]*", " ", paragraph)
        if len(text) > PASSAGE_CHARACTERS:
            yield Passage(path.name, text)
            text = ""
    if text:
        yield Passage(path.name, text)


def facts(tree: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Every `text` of a JSON file of the Factbook with the key above it, depth first."""
    if not isinstance(tree, dict):
        return
    for key, value in tree.items():
        if key != "text":
            yield from facts(value, key)
        elif isinstance(value, str):
            yield name, value


def passages_of_country(path: pathlib.Path) -> Iterator[Passage]:
    lines = list(facts(json.loads(path.read_text())))
    country = next((value for key, value in lines if key.lower() == "conventional short form"),
                   None)
    heading = f"Country: {country}\n" if country else ""
    text = heading
    for key, value in lines:
        text += f"{key}: {value}\n"
        if len(text) > PASSAGE_CHARACTERS:
            yield Passage("factbook", text)
            text = heading
    if len(text) > LAST_FACTS_CHARACTERS_MIN:
        yield Passage("factbook", text)


def passages(books: pathlib.Path, factbook: pathlib.Path) -> Iterator[Passage]:
    """`books` holds *.txt, `factbook` one folder of JSON files per region."""
    for path in sorted(books.glob("*.txt")):
        yield from passages_of_book(path)
    for path in sorted(factbook.glob("*/*.json")):
        if "meta" not in path.parts:
            yield from passages_of_country(path)
