"""The program under test, for every file of this folder."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TANDEM = ROOT / "build/release/apps/tandem"
MODEL = ROOT / "models/tiny-moe"


def run(*arguments, text=""):
    """Runs the program to its end with `text` as its standard input."""
    return subprocess.run(
        [TANDEM, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=120
    )
