"""`./x sim`: whole clusters in virtual time, one per seed (sim/README.md)."""

import random
import time

from x import build
from x.shell import run

BATCH = 100  # seeds of one run of the program


def commands(program: str, seed: int | None, seeds: int, trace: bool) -> list[list[str]]:
    """One run of the program per batch; without a seed, from one that nobody has tried."""
    first = random.randrange(1 << 40) if seed is None else seed
    result = []
    for start in range(0, seeds, BATCH):
        count = min(BATCH, seeds - start)
        result.append([program, str(first + start), "--seeds", str(count)])
    if trace:
        result = [[*command, "--trace"] for command in result]
    return result


def sim(seed: int | None, seeds: int, hours: float, trace: bool) -> None:
    build.build("release", ["tandem_sim"])
    program = str(build.folder("release") / "sim/tandem_sim")
    for command in commands(program, seed, seeds, trace):
        run(command)
    end = time.monotonic() + hours * 3600
    while time.monotonic() < end:
        for command in commands(program, None, BATCH, trace):
            run(command)
