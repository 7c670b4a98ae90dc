"""One ./x at a time where two would write the same files of build/."""

import contextlib
import fcntl
import sys
from collections.abc import Iterator

from x.shell import ROOT

FOLDER = ROOT / "build"


@contextlib.contextmanager
def hold(name: str) -> Iterator[None]:
    """Holds build/NAME.lock, after another ./x that does. No program that is started inherits it,
    and however a process ends, the system takes its lock back."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"x: another ./x is building {name} here; waiting for it", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
