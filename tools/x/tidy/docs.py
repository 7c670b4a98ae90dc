"""Rules over prose: a README per layer, links that lead somewhere, words that must not appear."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from x.tidy.tree import CPP, Finding, Tree, layer_of

README_LINES_MAX = 60
WORDS = "tools/tidy_words.txt"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEXT_FILES = (*CPP, ".py", ".md", ".txt", ".cmake", ".inc", ".sh", ".yml", ".yaml")
TEXT_NAMES = ("x", ".ci/run", ".gitignore", "CMakePresets.json")


def check_readmes(tree: Tree) -> Iterator[Finding]:
    with_code = {layer_of(path) for path in tree.files if path.endswith(".cc")} - {None}
    for layer in sorted(with_code):
        path = f"src/{layer}/README.md"
        if path not in tree.files:
            yield Finding(path, 1, "readme", f"src/{layer} has code but no README.md")
        elif len(tree.lines(path)) > README_LINES_MAX:
            count = len(tree.lines(path))
            yield Finding(path, count, "readme", f"{count} lines; {README_LINES_MAX} fit")


def check_links(tree: Tree) -> Iterator[Finding]:
    known = set(tree.files) | tree.folders()
    for path in tree.files:
        if not path.endswith(".md"):
            continue
        fenced = False
        for number, line in enumerate(tree.lines(path), 1):
            fenced ^= line.lstrip().startswith("```")
            if fenced:
                continue
            for target in LINK.findall(line):
                if re.match(r"[a-z]+:", target) or target.startswith("#"):
                    continue
                place = str(PurePosixPath(path).parent / target.split("#")[0])
                if posixpath.normpath(place) not in known:
                    yield Finding(path, number, "links", f"{target} does not exist")


def parse_words(text: str) -> list[tuple[re.Pattern, str]]:
    rows = (line for line in text.splitlines() if line and not line.startswith("#"))
    split = (row.partition("  # ") for row in rows)
    return [(re.compile(pattern), reason) for pattern, _, reason in split]


def check_words(tree: Tree) -> Iterator[Finding]:
    words = parse_words(tree.text(WORDS))
    for path in tree.files:
        if path == WORDS or not (path.endswith(TEXT_FILES) or path in TEXT_NAMES):
            continue
        for number, line in enumerate(tree.lines(path), 1):
            for pattern, reason in words:
                match = pattern.search(line)
                if match:
                    yield Finding(path, number, "words", f"{match.group()!r}: {reason}")


def check(tree: Tree) -> Iterator[Finding]:
    yield from check_readmes(tree)
    yield from check_links(tree)
    yield from check_words(tree)
