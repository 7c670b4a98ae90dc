"""`./x test`: every check in order, the cheap ones first, and a table of what each took."""

import subprocess
import sys
import time
import unittest
from collections.abc import Callable
from dataclasses import dataclass

from x import build, filters, fuzzers, models, packages, sources, tidy
from x.shell import ROOT, Failed

FUZZ_SECONDS = 10  # per fuzzer: long enough to replay the seeds and try some 100k inputs


@dataclass(frozen=True)
class Stage:
    name: str
    action: Callable[[], None]
    again: str  # the command that repeats just this stage


def tidy_checkout() -> None:
    findings = tidy.run(ROOT)
    for finding in findings:
        print(finding)
    if findings:
        raise Failed(f"{len(findings)} findings")
    print("no findings")


def test_tools() -> None:
    """The unit tests of ./x itself."""
    tools = ROOT / "tools"
    suite = unittest.defaultTestLoader.discover(str(tools / "x"), "*_test.py", str(tools))
    if not unittest.TextTestRunner(verbosity=1).run(suite).wasSuccessful():
        raise Failed("a unit test of tools/x failed")


def end_to_end() -> None:
    """unittest files in tests/e2e (test_*.py or *_test.py), in a process of their own."""
    if not (ROOT / "tests/e2e").is_dir():
        print("there is no tests/e2e")
        return
    command = [sys.executable, "-m", "unittest", "discover", "-v", "-s", "tests/e2e"]
    command += ["-p", "*test*.py"]
    ran_none = False
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            print(line, end="")
            ran_none |= line.startswith("Ran 0 tests")
    if ran_none:
        raise Failed("tests/e2e holds no unittest.TestCase that was found")
    if process.returncode != 0:
        raise Failed("an end-to-end test failed")


def all_stages() -> list[Stage]:
    return [
        Stage("tidy", tidy_checkout, "./x tidy"),
        Stage("tools", test_tools, "./x tidy --self-test"),
        Stage("format", lambda: sources.format_sources(check_only=True), "./x format --check"),
        Stage("models", models.check_all, "./x spin"),
        Stage("build release", lambda: build.build("release"), "./x build release"),
        Stage("headers", sources.check_headers, "./x headers"),
        Stage("test release", lambda: build.ctest("release"), "./x test FILTER"),
        Stage("end to end", end_to_end, "python3 -m unittest discover -s tests/e2e -p '*test*.py'"),
        Stage("build asan", lambda: build.build("asan"), "./x build asan"),
        Stage("test asan", lambda: build.sanitized_ctest("asan"), "ctest --test-dir build/asan"),
        Stage("fuzz", lambda: fuzzers.run_all(FUZZ_SECONDS), "./x fuzz"),
    ]


def table(rows: list[tuple[str, float, str]]) -> str:
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{name:<{width}}  {seconds:7.1f} s  {result}" for name, seconds, result in rows]
    lines.append(f"{'total':<{width}}  {sum(seconds for _, seconds, _ in rows):7.1f} s")
    return "\n".join(lines)


def run_stages(stages: list[Stage]) -> None:
    """Runs stages up to the first that fails; the table is the last thing printed before it."""
    rows = []
    failure = None
    for stage in stages:
        print(f"\n== {stage.name}", flush=True)
        start = time.monotonic()
        try:
            stage.action()
        except Failed as problem:
            failure = Failed(f"stage '{stage.name}' failed: {problem}\nagain: {stage.again}")
        rows.append((stage.name, time.monotonic() - start, "FAILED" if failure else "ok"))
        if failure:
            break
    print("\n" + table(rows), flush=True)
    if failure:
        raise failure


def beside_ctests() -> dict[str, str]:
    """What is checked without ctest, and the command for each."""
    files = sorted((ROOT / "tests/e2e").glob("*_test.py"))
    commands = {path.stem: f"python3 {path.relative_to(ROOT)}" for path in files}
    return commands | {stage.name: stage.again for stage in all_stages()}


def test(name_filter: str | None) -> None:
    if name_filter is not None:
        filters.require_match(name_filter, beside_ctests())
        build.build("release")
        build.ctest("release", "--tests-regex", name_filter)
        return
    packages.setup()
    run_stages(all_stages())
