"""Rules over single C++ and Python files: sizes, guards, calls that have no place here."""

import re
from collections.abc import Iterator

from x.tidy.tree import CPP, Finding, Tree, code_only, is_test, layer_of

HEADER_LINES_MAX = 150  # a contract has to be readable in one go
SOURCE_LINES_MAX = 400  # both are tripwires: `// long: why` at the top lets it be longer
LINES_HARD_MAX = 800
WAIVER_LINES = 15  # where that comment is looked for
COLUMNS_MAX = 100

WIDE = re.compile(r"# wide: \w+")  # at the top of a Python file of data, one case a line
LONG = re.compile(r"(//|#) long: \w+")
GENERATED = re.compile(r"(//|#) .*\bDo not edit\b")
RAW_STRING = re.compile(r'\bR"')  # cannot be broken into lines
PRINTS = re.compile(r"\b(?:v?f?printf|f?puts|putchar)\s*\(|\bstd::(?:cout|cerr|clog)\b")
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\s*\(")
REGEX = re.compile(r"\bstd::(?:w|c|s)?regex")
TODO = re.compile(r"\bTODO\b(?!\(#\d+\))")
MAY_PRINT = {"src/base/check.cc"}  # the logger may be what failed
OWN = "tools/x/tidy"  # this tool and its tests spell what they forbid


def is_generated(lines: list[str]) -> bool:
    return any(GENERATED.search(line) for line in lines[:WAIVER_LINES])


def check_size(path: str, lines: list[str]) -> Iterator[Finding]:
    """Generated tables are data and may have any length."""
    if is_generated(lines):
        return
    count = len(lines)
    is_contract = path.endswith(".h") and not is_test(path)
    tripwire = HEADER_LINES_MAX if is_contract else SOURCE_LINES_MAX
    if count > LINES_HARD_MAX:
        yield Finding(path, count, "size", f"{count} lines; {LINES_HARD_MAX} is the hard limit")
    elif count > tripwire and not any(LONG.search(line) for line in lines[:WAIVER_LINES]):
        yield Finding(
            path,
            count,
            "size",
            f"{count} lines, more than {tripwire}: split it, or say `long: why` at its top",
        )


def check_columns(path: str, lines: list[str]) -> Iterator[Finding]:
    """In Markdown only prose: tables and addresses cannot be broken."""
    if is_generated(lines) or any(WIDE.search(line) for line in lines[:WAIVER_LINES]):
        return
    fenced = False
    for number, line in enumerate(lines, 1):
        if path.endswith(".md"):
            fenced ^= line.lstrip().startswith("```")
            if fenced or line.lstrip().startswith("|") or "://" in line:
                continue
        if len(line) > COLUMNS_MAX and not RAW_STRING.search(line):
            yield Finding(path, number, "columns", f"{len(line)} columns; {COLUMNS_MAX} fit")


def check_cpp(path: str, text: str) -> Iterator[Finding]:
    if path.endswith(".h") and not re.search(r"^#pragma once$", text, re.MULTILINE):
        yield Finding(path, 1, "pragma", "a header needs `#pragma once`")
    product = layer_of(path) is not None and not is_test(path)
    for number, line in enumerate(code_only(text).splitlines(), 1):
        if REGEX.search(line):
            yield Finding(path, number, "calls", "std::regex recurses on input; write a scanner")
        if product and path not in MAY_PRINT and PRINTS.search(line):
            yield Finding(path, number, "calls", "src does not print: log, or return an Error")
        if product and ENVIRONMENT.search(line):
            yield Finding(path, number, "calls", "only apps/ reads the environment")


def check(tree: Tree) -> Iterator[Finding]:
    for path in tree.files:
        is_code = path.endswith((*CPP, ".py")) or path == "x"
        if not is_code and not path.endswith(".md"):
            continue
        lines = tree.lines(path)
        yield from check_columns(path, lines)
        if not is_code:
            continue
        yield from check_size(path, lines)
        if path.endswith(CPP):
            yield from check_cpp(path, tree.text(path))
        if not path.startswith(OWN):
            for number, line in enumerate(lines, 1):
                if TODO.search(line):
                    yield Finding(path, number, "todo", "write `TODO(#id)` with an issue's number")
