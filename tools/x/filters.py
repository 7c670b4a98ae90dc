"""Whether a filter of `./x test` names a ctest, asked before anything is compiled."""

import difflib
import json
import subprocess

from x import build
from x.shell import ROOT, Failed

NEAREST_MAX = 5
LIKENESS_MIN = 0.5  # of difflib: a transposition or a missing letter passes, another word does not


def ctest_names(name_filter: str = ".") -> list[str]:
    """Of the configured release preset, matched by ctest itself: it has its own dialect."""
    command = ["ctest", "--test-dir", str(build.folder("release")), "--show-only=json-v1"]
    command += ["--tests-regex", name_filter]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    try:
        return [test["name"] for test in json.loads(answer)["tests"]]
    except json.JSONDecodeError:
        raise Failed(f"{name_filter!r} is no regular expression to ctest") from None


def nearest(name_filter: str, commands: dict[str, str]) -> list[str]:
    """Names or commands with the filter in them, then names that are spelt alike."""
    inside = [name for name, command in commands.items() if name_filter in f"{name} {command}"]
    alike = difflib.get_close_matches(name_filter, commands, NEAREST_MAX, LIKENESS_MIN)
    return list(dict.fromkeys(inside + alike))[:NEAREST_MAX]


def refusal(name_filter: str, ctests: list[str], others: dict[str, str]) -> str:
    """What else may have been meant; `others`: checks without ctest, with their commands."""
    commands = others | {name: f"./x test {name}" for name in ctests}
    lines = [f"no ctest matches {name_filter!r}"]
    near = nearest(name_filter, commands)
    if near:
        lines[0] += "; nearest:"
    width = max(map(len, near), default=0)
    lines += [f"  {name:<{width}}  {commands[name]}" for name in near]
    lines.append("ctests: " + " ".join(ctests))
    return "\n".join(lines)


def require_match(name_filter: str, others: dict[str, str]) -> None:
    build.build("release", ["build.ninja"])
    if not ctest_names(name_filter):
        raise Failed(refusal(name_filter, ctest_names(), others))
