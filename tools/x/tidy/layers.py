"""The one-way rule: what a file of a layer may include, as tools/layers.txt states it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import PurePosixPath

from x.tidy.tree import Finding, Tree, is_test, layer_of

TABLE = "tools/layers.txt"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
ROW = re.compile(r"(layer|also|library|forbid)\s+([^:]+?)\s*:\s*(.*)$")


@dataclass
class Table:
    layers: dict[str, set[str]] = field(default_factory=dict)
    also: list[tuple[str, list[str], set[str]]] = field(default_factory=list)
    libraries: dict[str, set[str]] = field(default_factory=dict)
    forbidden: list[tuple[str, set[str]]] = field(default_factory=list)


class BadTable(Exception):
    pass


def parse(text: str) -> Table:
    table = Table()
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        row = ROW.match(line)
        if not row:
            raise BadTable(f"{TABLE}:{number}: want `layer|also|library|forbid NAME: VALUES`")
        kind, name, values = row[1], row[2], set(row[3].split())
        if kind == "layer":
            table.layers[name] = values
        elif kind == "also":
            layer, *patterns = name.split()
            table.also.append((layer, patterns, values))
        elif kind == "library":
            table.libraries[name] = values
        else:
            table.forbidden.append((name, values))
    for layer, values in table.layers.items():
        for value in values:
            if value.split("/")[0] not in table.layers:
                raise BadTable(f"{TABLE}: layer {layer} may include {value}, which is no layer")
    cycle = find_cycle(table.layers)
    if cycle:
        raise BadTable(f"{TABLE}: the layers are a circle: {' -> '.join(cycle)}")
    return table


def find_cycle(layers: dict[str, set[str]]) -> list[str]:
    """A circle among the rows, or nothing. One header granted by path counts as its layer."""
    finished: set[str] = set()

    def visit(layer: str, trail: list[str]) -> list[str]:
        if layer in trail:
            return trail[trail.index(layer) :] + [layer]
        if layer in finished:
            return []
        for target in sorted(layers[layer]):
            cycle = visit(target.split("/")[0], trail + [layer])
            if cycle:
                return cycle
        finished.add(layer)
        return []

    return next((cycle for layer in layers if (cycle := visit(layer, []))), [])


def permissions(table: Table, path: str, layer: str) -> set[str]:
    result = {layer, "base"} | table.layers[layer]
    name = PurePosixPath(path).name
    for row_layer, patterns, values in table.also:
        if row_layer not in ("*", layer):
            continue
        if any(is_test(path) if p == "tests" else fnmatch(name, p) for p in patterns):
            # base stays below everything, tests included: what it needs, it owns.
            result |= values if layer != "base" else set()
    return result


def library_of(table: Table, include: str) -> str | None:
    for name in table.libraries:
        if include == name or (name.endswith("/") and include.startswith(name)):
            return name
    return None


def problem(table: Table, path: str, layer: str, quoted: bool, include: str) -> str | None:
    """Why this include is not allowed, or None."""
    target = include.split("/")[0]
    if target in table.layers and "/" in include:
        allowed = permissions(table, path, layer)
        if target not in allowed and include not in allowed:
            return f"{layer} may not include {include} (may: {' '.join(sorted(allowed))})"
        if fnmatch(include, "*_cpu.h") and not (is_test(path) or "_cpu." in path):
            return f"{include} is seen only by _cpu files and tests"
        return None
    library = library_of(table, include)
    if library is not None:
        users = table.libraries[library]
        if "*" in users or layer in users or ("tests" in users and is_test(path)):
            return None
        return f"<{include}> is only for: {' '.join(sorted(users))}"
    if quoted:
        return f'"{include}" does not start with a layer; write it relative to src/'
    if "/" in include or include.endswith((".h", ".hpp")):
        return f"<{include}> is a library that {TABLE} does not name"
    for row_layer, headers in table.forbidden:
        if row_layer in ("*", layer) and include in headers and not is_test(path):
            return f"<{include}> does not belong in {layer}"
    return None


def check(tree: Tree) -> Iterator[Finding]:
    try:
        table = parse(tree.text(TABLE))
    except BadTable as bad:
        yield Finding(TABLE, 1, "layers", str(bad))
        return
    for path in tree.cpp():
        layer = layer_of(path)
        if layer is None:
            continue  # apps, sim and the tests outside src may include anything
        if layer not in table.layers:
            yield Finding(path, 1, "layers", f"src/{layer} is not in {TABLE}")
            continue
        for number, line in enumerate(tree.lines(path), 1):
            match = INCLUDE.match(line)
            if match:
                message = problem(table, path, layer, match[1] == '"', match[2])
                if message:
                    yield Finding(path, number, "layers", message)
