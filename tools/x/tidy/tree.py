"""The files that the rules look at, what a rule reports, and C++ text without its comments."""

import re
import subprocess
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from x.shell import Failed

CPP = (".h", ".cc", ".cu", ".cuh")
TESTS = ("*_test.cc", "*_bench.cc", "*_fuzz.cc", "*_test_*.h")
TESTS_FOLDER = "testing"  # src/<layer>/testing: fakes and fixtures


@dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: [{self.rule}] {self.message}"


@dataclass
class Tree:
    """Paths relative to the root, sorted, and their text (read once, on demand)."""

    root: Path
    files: list[str]
    texts: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of_checkout(root: Path) -> "Tree":
        """What git tracks and what is new and not ignored; a file deleted by hand is left out."""
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        try:
            names = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
        except (FileNotFoundError, subprocess.CalledProcessError):
            raise Failed("git lists the files to look at: run this in a clone, with git") from None
        files = {name for name in names.decode().split("\0") if name and (root / name).is_file()}
        return Tree(root, sorted(files))

    @staticmethod
    def of_texts(texts: dict[str, str]) -> "Tree":
        """A made-up checkout for tests."""
        return Tree(Path("."), sorted(texts), dict(texts))

    def text(self, path: str) -> str:
        if path not in self.texts:
            self.texts[path] = (self.root / path).read_text(errors="replace")
        return self.texts[path]

    def lines(self, path: str) -> list[str]:
        return self.text(path).splitlines()

    def folders(self) -> set[str]:
        return {str(parent) for path in self.files for parent in PurePosixPath(path).parents}

    def cpp(self) -> list[str]:
        return [path for path in self.files if path.endswith(CPP)]


def layer_of(path: str) -> str | None:
    """`base` for src/base/check.h; None outside src."""
    parts = PurePosixPath(path).parts
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def is_test(path: str) -> bool:
    """Tests and what only they include."""
    place = PurePosixPath(path)
    return TESTS_FOLDER in place.parts or any(fnmatch(place.name, pattern) for pattern in TESTS)


# An apostrophe right after a letter or digit separates digits (1'000) and opens nothing.
NOT_CODE = re.compile(
    r'R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    r"|//[^\n]*|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<!\w)'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


def code_only(text: str) -> str:
    """Comments become blanks and literals become `""`, with every line break kept."""

    def blank(match: re.Match) -> str:
        breaks = "\n" * match.group().count("\n")
        return (" " if match.group().startswith("/") else '""') + breaks

    return NOT_CODE.sub(blank, text)
