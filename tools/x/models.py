"""`./x spin`: the protocol models of formal/*.pml, verified exhaustively with Spin.

A model lists its own runs in lines of its first comment:

    verify NAME NAME=VALUE ...              no assertion fails in any state
    break NAME ... fails ASSERTION          exactly this assertion fails: the measure is needed

The names are macros for the preprocessor."""

import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from x.shell import ROOT, Failed, jobs_count, need_program

FOLDER = ROOT / "formal"
MEMORY_MIB_MAX = 2048  # per run; a run that needs more is no proof, and fails
DEPTH_MAX = 100_000
SECONDS_MAX = 300
LINE = re.compile(r"^\s*\*\s+(verify|break)\b\s*(.*?)\s*$")
MACRO = re.compile(r"[A-Z_]+(=\d+)?$")


@dataclass(frozen=True)
class Run:
    model: Path
    macros: tuple[str, ...]
    fails: str | None  # the assertion, for a model that was broken on purpose

    @property
    def name(self) -> str:
        return " ".join((self.model.name, *self.macros))


def parse(model: Path, text: str) -> list[Run]:
    runs = []
    comment = text.split("*/")[0]
    for line in comment.splitlines():
        found = LINE.match(line)
        if not found:
            continue
        kind, rest = found.groups()
        macros, _, assertion = rest.partition("fails ")
        names = tuple(macros.split())
        wrong = [name for name in names if not MACRO.match(name)]
        if wrong or (kind == "break") != bool(assertion.strip()):
            raise Failed(f"{model.name}: {line.strip()!r} is no run; see tools/x/models.py")
        runs.append(Run(model, names, assertion.strip() or None))
    if not any(run.fails is None for run in runs):
        raise Failed(f"{model.name} says nothing that is to be verified")
    return runs


def complaint(run: Run, output: str) -> str | None:
    """Why what the verifier printed is not what the run says, or None."""
    errors = re.search(r"errors: (\d+)", output)
    if errors is None:
        return "the verifier came to no end"
    violated = re.search(r"assertion violated (.*?) \(at depth", output)
    if run.fails is not None:
        if violated is None:
            return f"holds, but {run.fails} should fail without the measure"
        if violated[1] != run.fails:
            return f"{violated[1]} fails, not {run.fails}"
        return None
    if violated is not None:
        return f"{violated[1]} fails"
    if errors[1] != "0":
        return "an error that is no assertion"
    for sign in ("max search depth too small", "-DMEMLIM bound", "Search not completed"):
        if sign in output:
            return f"not all states were searched: {sign}"
    return None


def execute(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {SECONDS_MAX} s"
    return done.stdout


def search(run: Run) -> str:
    """Everything that Spin and the verifier it makes print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(run.model, folder / "model.pml")
        defines = [f"-D{macro}" for macro in run.macros]
        made = execute(["spin", *defines, "-a", "model.pml"], folder)
        if not (folder / "pan.c").exists():
            return made
        level = "-O2" if run.fails is None else "-O0"  # a counterexample is found at once
        limits = ["-DSAFETY", f"-DMEMLIM={MEMORY_MIB_MAX}"]
        made = execute(["gcc", "-w", level, *limits, "-o", "pan", "pan.c"], folder)
        if not (folder / "pan").exists():
            return made
        return execute(["./pan", f"-m{DEPTH_MAX}"], folder)


def report(run: Run) -> bool:
    output = search(run)
    problem = complaint(run, output)
    states = re.search(r"(\S+) states, stored", output)
    count = states[1] if states else "?"
    if problem is None:
        result = "holds" if run.fails is None else f"breaks {run.fails}"
        print(f"  {run.name}: {result} ({count} states)", flush=True)
    else:
        print(f"  {run.name}: FAILED: {problem}\n{output[-3000:]}", flush=True)
    return problem is None


def check_all() -> None:
    runs = [run for path in sorted(FOLDER.glob("*.pml")) for run in parse(path, path.read_text())]
    if not runs:
        print("there are no models (formal/*.pml)")
        return
    need_program("spin")
    need_program("gcc")
    with ThreadPoolExecutor(jobs_count()) as pool:
        passed = list(pool.map(report, runs))
    bad = [run.name for run, ok in zip(runs, passed) if not ok]
    if bad:
        raise Failed(f"{'; '.join(bad)}: not as the model says")
