"""Running programs from the project's root, and failing with one clear line."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What one compiler may need: the units with Beast take more than 1 GiB under the sanitizers.
COMPILE_BYTES_MAX = 3 << 29


class Failed(Exception):
    """Ends the verb. The message says what failed and what to do; no traceback is shown."""


def run(command: list[str], *, environment: dict[str, str] | None = None) -> None:
    """Runs a command in the project's root with its output shown; Failed when it fails."""
    print("+ " + shlex.join(command), flush=True)
    try:
        status = subprocess.run(command, cwd=ROOT, env=os.environ | (environment or {})).returncode
    except FileNotFoundError:
        raise Failed(f"{command[0]} is not installed; run ./x setup") from None
    if status != 0:
        raise Failed(f"exit status {status} of: {shlex.join(command)}")


def replace_process(command: list[str]) -> None:
    """Becomes the command, so that signals reach it directly."""
    print("+ " + shlex.join(command), flush=True)
    os.chdir(ROOT)
    os.execv(command[0], command)


def need_program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Failed(f"{name} is not installed; run ./x setup")
    return path


def jobs_count() -> int:
    """Compilers at once: the cores this process may use, as far as memory allows."""
    cores = len(os.sched_getaffinity(0))
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return max(1, min(cores, int(line.split()[1]) * 1024 // COMPILE_BYTES_MAX))
    return cores
