"""libFuzzer targets: one per x_fuzz.cc, seeded from fuzz_corpus/x beside it."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from x import build
from x.shell import ROOT, Failed, jobs_count, need_program

BUILD = ROOT / "build/fuzz"
INPUT_SECONDS_MAX = 10
MEMORY_MIB_MAX = 2048


@dataclass(frozen=True)
class Fuzzer:
    source: Path

    @property
    def layer(self) -> str:
        return self.source.relative_to(ROOT / "src").parts[0]

    @property
    def target(self) -> str:
        """As cmake/Module.cmake names it."""
        return f"{self.layer}_{self.source.stem}"

    @property
    def seeds(self) -> Path:
        return self.source.parent / "fuzz_corpus" / self.source.stem.removesuffix("_fuzz")

    def command(self, seconds: int) -> list[str]:
        found = BUILD / "found" / self.target  # inputs that reach new code, kept for the next run
        found.mkdir(parents=True, exist_ok=True)
        return [
            str(BUILD / "src" / self.layer / self.target),
            f"-max_total_time={seconds}",
            f"-timeout={INPUT_SECONDS_MAX}",
            f"-rss_limit_mb={MEMORY_MIB_MAX}",
            f"-artifact_prefix={BUILD}/{self.target}-",
            str(found),
            *([str(self.seeds)] if self.seeds.is_dir() else []),
        ]


def all_fuzzers() -> list[Fuzzer]:
    return [Fuzzer(path) for path in sorted((ROOT / "src").rglob("*_fuzz.cc"))]


def run_one(fuzzer: Fuzzer, seconds: int) -> bool:
    # Seeds are read from files and parsers may be fed paths: every fuzzer runs in the root.
    done = subprocess.run(
        fuzzer.command(seconds),
        cwd=ROOT,
        env=os.environ | {"UBSAN_OPTIONS": "print_stacktrace=1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines = done.stdout.splitlines()
    if done.returncode == 0:
        last = next((line for line in reversed(lines) if line.startswith("Done ")), "done")
        seeds = "" if fuzzer.seeds.is_dir() else " (no seeds)"
        print(f"  {fuzzer.target}: {last.lower()}{seeds}", flush=True)
    else:
        print(f"  {fuzzer.target}: FAILED\n" + "\n".join(lines[-60:]), flush=True)
    return done.returncode == 0


def run_all(seconds: int) -> None:
    fuzzers = all_fuzzers()
    if not fuzzers:
        print("there are no fuzzers (src/**/x_fuzz.cc)")
        return
    need_program("clang++-19")
    build.build("fuzz", [fuzzer.target for fuzzer in fuzzers])
    with ThreadPoolExecutor(jobs_count()) as pool:
        passed = list(pool.map(lambda fuzzer: run_one(fuzzer, seconds), fuzzers))
    bad = [fuzzer.target for fuzzer, ok in zip(fuzzers, passed) if not ok]
    if bad:
        names = " ".join(bad)
        raise Failed(f"{names}: the failing input is build/fuzz/<fuzzer>-{{crash,timeout,oom}}-*")
