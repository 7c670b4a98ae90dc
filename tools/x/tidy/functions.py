"""The length of C++ functions, by counting braces. Approximate: it knows no preprocessor and no
grammar, only what the text in front of a brace looks like. It errs towards silence."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from x.tidy.tree import Finding, Tree, code_only

FUNCTION_LINES_MAX = 70  # a tripwire: `// long: why` above or in the signature lets it be longer
WAIVER = re.compile(r"// long: \w+")
WAIVER_LINES_ABOVE = 5
TYPE = re.compile(r"(?:\b(?:export|static|inline|constexpr|typedef|const)\s+)*"
                  r"(?:class|struct|union|enum)\b")


@dataclass(frozen=True)
class Function:
    first_line: int  # of its signature
    brace_line: int
    last_line: int

    @property
    def lines_count(self) -> int:
        return self.last_line - self.first_line + 1


def without_preprocessor(code: str) -> str:
    """Blanks directives, with their continuation lines, and every branch after the first: two
    branches may open the same brace."""
    result = []
    skipping: list[bool] = []  # per open #if: is a later branch being read
    continued = False
    for line in code.split("\n"):
        directive = continued or line.lstrip().startswith("#")
        word = re.match(r"\s*#\s*(\w+)", line)
        if word and not continued:
            if word[1] in ("if", "ifdef", "ifndef"):
                skipping.append(False)
            elif word[1] in ("else", "elif") and skipping:
                skipping[-1] = True
            elif word[1] == "endif" and skipping:
                skipping.pop()
        result.append("" if directive or any(skipping) else line)
        continued = directive and line.rstrip().endswith("\\")
    return "\n".join(result)


def without_template(head: str) -> str:
    """Drops a leading `template <...>`, whose parameters may say `class`."""
    head = head.strip()
    while head.startswith("template"):
        depth = 0
        for index, character in enumerate(head):
            depth += (character == "<") - (character == ">")
            if character == ">" and depth == 0:
                head = head[index + 1 :].strip()
                break
        else:
            return head
    return head


def opens(head: str) -> str:
    """What a brace after this text opens outside of functions: scope, function or other."""
    head = without_template(head)
    if re.match(r"(?:inline\s+)?namespace\b", head) or re.fullmatch(r'extern\s*""', head):
        return "scope"
    if TYPE.match(head):
        return "scope"
    if head.endswith(("=", ",", "(", "return")) or ")" not in head:
        return "other"
    return "function"


def functions(text: str) -> Iterator[Function]:
    code = without_preprocessor(code_only(text))
    stack: list[str] = []
    starts: list[tuple[int, int]] = []  # first line and brace line of open functions
    line = 1
    head = ""
    head_line = 1
    for character in code:
        if character == "\n":
            line += 1
        if character == "{":
            inside = any(kind != "scope" for kind in stack)
            kind = "other" if inside else opens(head)
            if kind == "function":
                starts.append((head_line, line))
            stack.append(kind)
        elif character == "}" and stack:
            if stack.pop() == "function":
                first, brace = starts.pop()
                yield Function(first, brace, line)
        if character in "{};":
            head = ""
        elif head or not character.isspace():
            if not head:
                head_line = line
            head += character


def check(tree: Tree) -> Iterator[Finding]:
    for path in tree.cpp():
        lines = tree.lines(path)
        for function in functions(tree.text(path)):
            if function.lines_count <= FUNCTION_LINES_MAX:
                continue
            above = max(0, function.first_line - 1 - WAIVER_LINES_ABOVE)
            near = lines[above : function.brace_line + 1]
            if not any(WAIVER.search(line) for line in near):
                yield Finding(
                    path,
                    function.first_line,
                    "function",
                    f"{function.lines_count} lines, more than {FUNCTION_LINES_MAX}: "
                    "split it, or say `// long: why` above it",
                )
