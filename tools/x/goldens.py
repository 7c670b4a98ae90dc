"""Expected values for tests, made by tools/golden/*.py with PyTorch and transformers. Each script
takes no arguments and writes its committed files; one whose name starts with `_` is a module."""

import os
import shutil
import subprocess

from x.shell import ROOT, Failed, run

FOLDER = ROOT / "tools/golden"
NEEDED = "import torch, transformers, tokenizers"


def pythons() -> list[str]:
    """Where the libraries may be: a virtual environment that is active or in the checkout, then
    the python3 on PATH."""
    places = []
    if "VIRTUAL_ENV" in os.environ:
        places.append(os.path.join(os.environ["VIRTUAL_ENV"], "bin/python"))
    places.append(str(ROOT / ".venv/bin/python"))
    places.append(shutil.which("python3") or "")
    return [path for path in places if path and os.path.exists(path)]


def usable_python() -> str:
    for python in pythons():
        if subprocess.run([python, "-c", NEEDED], capture_output=True).returncode == 0:
            return python
    raise Failed(
        "goldens are made with PyTorch, transformers and tokenizers, and no Python here has them:\n"
        "  python3 -m venv .venv && .venv/bin/pip install -r tools/golden/requirements.txt"
    )


def make(what: str | None) -> None:
    scripts = {path.stem: path for path in sorted(FOLDER.glob("*.py")) if path.stem[0] != "_"}
    if what is not None and what not in scripts:
        raise Failed(f"no golden {what!r}; there are: {', '.join(scripts) or 'none'}")
    if not scripts:
        print("there are no generators (tools/golden/*.py)")
        return
    python = usable_python()
    for name in [what] if what else scripts:
        run([python, str(scripts[name].relative_to(ROOT))])
