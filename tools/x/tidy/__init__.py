"""`./x tidy`: rules a compiler does not know, over the files of the checkout, in seconds."""

from pathlib import Path

from x.tidy import code, docs, functions, layers
from x.tidy.tree import Finding, Tree

CHECKS = (layers.check, code.check, functions.check, docs.check)


def run(root: Path) -> list[Finding]:
    tree = Tree.of_checkout(root)
    return sorted(finding for check in CHECKS for finding in check(tree))
