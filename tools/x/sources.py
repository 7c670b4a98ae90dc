"""The C++ files of the project, clang-format over them, and headers that compile alone."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from x import lock
from x.shell import ROOT, Failed, jobs_count, need_program
from x.tidy.tree import Tree

CLANG_FORMAT = "clang-format-19"
FORMATTED = (".h", ".cc", ".cu", ".cuh")
# The warnings of cmake/Toolchain.cmake; optimisation is left out because nothing is run.
HEADER_FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]


def format_sources(check_only: bool) -> None:
    files = [path for path in Tree.of_checkout(ROOT).files if path.endswith(FORMATTED)]
    if not files:
        return
    mode = ["--dry-run", "-Werror"] if check_only else ["-i"]
    command = [need_program(CLANG_FORMAT), *mode, *files]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if done.returncode == 0:
        print(f"{len(files)} files {'are' if check_only else 'now'} formatted")
        return
    bad = sorted({line.split(":")[0] for line in done.stderr.splitlines() if ": error:" in line})
    if not bad:
        raise Failed(f"{CLANG_FORMAT}: {done.stderr.strip()}")
    raise Failed("not formatted (run ./x format):\n" + "\n".join("  " + path for path in bad))


def compile_header(header: str) -> str:
    """Compiles a unit that holds one include; returns the compiler's complaints. The unit has a
    fixed name, so that ccache answers when nothing changed."""
    unit = ROOT / "build/headers" / (header + ".cc")
    unit.parent.mkdir(parents=True, exist_ok=True)
    text = f'#include "{Path(header).relative_to("src")}"\n'
    if not unit.exists() or unit.read_text() != text:
        unit.write_text(text)
    command = ["ccache", "g++", *HEADER_FLAGS, "-Isrc", "-c", str(unit.relative_to(ROOT))]
    command += ["-o", str(unit.with_suffix(".o").relative_to(ROOT))]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    return "" if done.returncode == 0 else done.stderr


def check_headers() -> None:
    """Every header of src compiles as the first and only include of a unit."""
    need_program("ccache")
    need_program("g++")
    tree = Tree.of_checkout(ROOT)
    headers = [path for path in tree.files if path.startswith("src/") and path.endswith(".h")]
    with lock.hold("headers"), ThreadPoolExecutor(jobs_count()) as pool:
        complaints = list(pool.map(compile_header, headers))
    bad = [header for header, text in zip(headers, complaints) if text]
    for text in complaints:
        print(text, end="")
    if bad:
        raise Failed("does not compile alone: " + " ".join(bad))
    print(f"{len(headers)} headers compile alone")
