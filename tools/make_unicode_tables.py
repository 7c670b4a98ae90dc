#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cc.

The tables must say what the `tokenizers` library says, whose regex engine and whose NFC follow
two different Unicode versions. So nothing is read from a Unicode database: the installed library
is asked about every code point.

Usage: tools/make_unicode_tables.py [--check]   (--check compares instead of writing)
"""

import argparse
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "src/text/unicode_tables.cc"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
NFC = normalizers.NFC().normalize_str
NFD = normalizers.NFD().normalize_str

HANGUL_SYLLABLES = range(0xAC00, 0xAC00 + 11172)
HANGUL_VOWELS = range(0x1161, 0x1176)
HANGUL_TRAILS = range(0x11A8, 0x11C3)


def members(pattern):
    """The code points that match a one-character pattern."""
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    found = []
    for start in range(0, len(CODE_POINTS), 4096):
        block = CODE_POINTS[start : start + 4096]
        kept = set()
        for _, (begin, end) in split.pre_tokenize_str("".join(map(chr, block))):
            kept.update(range(begin, end))
        found += [c for i, c in enumerate(block) if i not in kept]
    return found


def class_ranges():
    """[(first, last, class)] of letters, marks, numbers and white space."""
    class_of = {}
    for name, pattern in [
        ("kLetter", r"\p{L}"),
        ("kMark", r"\p{M}"),
        ("kNumber", r"\p{N}"),
        ("kSpace", r"\s"),
    ]:
        for code_point in members(pattern):
            assert code_point not in class_of, hex(code_point)
            class_of[code_point] = name
    ranges = []
    for code_point, name in sorted(class_of.items()):
        if ranges and ranges[-1][1] == code_point - 1 and ranges[-1][2] == name:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point, name])
    return ranges


def combining_classes():
    """{code point: combining class}, for classes that are not 0.

    Canonical ordering shows the order of two classes: a pair swaps iff the first class is the
    larger one and neither is 0. Known characters of every class then pin down the others.
    """
    lowest, highest = "\u0334", "\u0345"  # classes 1 and 240, the ends of the scale

    def swaps(first, second):
        return NFD("a" + first + second) == "a" + second + first

    def is_ordered(char):
        return char in (lowest, highest) or swaps(highest, char) or swaps(char, lowest)

    known = {}
    for code_point in range(0x300, 0x1F000):
        char = chr(code_point)
        value = unicodedata.combining(char)
        # A mark that is younger than the library is of class 0 there and measures nothing.
        if value and value not in known and NFD(char) == char and is_ordered(char):
            known[value] = char

    classes = {}
    for code_point in CODE_POINTS:
        char = chr(code_point)
        if NFD(char) != char or not is_ordered(char):
            continue  # Of class 0, or it decomposes: then only its parts are ever ordered.
        equal = [
            value
            for value, other in known.items()
            if char == other or not (swaps(char, other) or swaps(other, char))
        ]
        assert len(equal) == 1, (hex(code_point), equal)
        classes[code_point] = equal[0]
    return classes


def decompositions():
    """{code point: full canonical decomposition}, Hangul left to arithmetic."""
    table = {}
    for code_point in CODE_POINTS:
        text = NFD(chr(code_point))
        if code_point in HANGUL_SYLLABLES:
            index = code_point - 0xAC00
            expected = chr(0x1100 + index // 588) + chr(0x1161 + index % 588 // 28)
            if index % 28:
                expected += chr(0x11A7 + index % 28)
            assert text == expected and NFC(text) == chr(code_point), hex(code_point)
        elif text != chr(code_point):
            table[code_point] = text
    return table


def compositions(decomposed):
    """{(first, second): composite} of every primary composite."""
    pairs = {}
    for code_point, text in decomposed.items():
        if NFC(text) != chr(code_point):
            continue  # A singleton, or excluded from composition.
        first = NFC(text[:-1])
        assert len(first) == 1 and NFC(first + text[-1]) == chr(code_point), hex(code_point)
        pairs[(ord(first), ord(text[-1]))] = code_point
    return pairs


def unstable_ranges(classes, decomposed, pairs):
    """Code points that NFC may change, or join with or order against an earlier character."""
    unstable = set(classes)
    unstable.update(c for c in decomposed if NFC(chr(c)) != chr(c))
    unstable.update(second for _, second in pairs)
    unstable.update(HANGUL_VOWELS)
    unstable.update(HANGUL_TRAILS)
    ranges = []
    for code_point in sorted(unstable):
        if ranges and ranges[-1][1] == code_point - 1:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point])
    assert ranges[0][0] >= 0x300, "normalize.cc passes everything below U+0300"
    return ranges


def lines(items):
    """Joins items to lines of at most 100 columns."""
    out, line = [], "   "
    for item in items:
        if len(line) + 1 + len(item) > 100:
            out.append(line)
            line = "   "
        line += " " + item
    out.append(line)
    return "\n".join(out)


def array(kind, name, items):
    return (
        f"constexpr {kind} {name}Data[] = {{\n{lines(items)}\n}};\n"
        f"const std::span<const {kind}> {name}{{{name}Data}};\n"
    )


def render():
    classes = combining_classes()
    decomposed = decompositions()
    pairs = compositions(decomposed)

    class_items = [f"{{0x{a:X}, 0x{b:X}, {c}}}," for a, b, c in class_ranges()]
    combining_ranges = []
    for code_point, value in sorted(classes.items()):
        last = combining_ranges[-1] if combining_ranges else None
        if last and last[1] == code_point - 1 and last[2] == value:
            last[1] = code_point
        else:
            combining_ranges.append([code_point, code_point, value])
    combining_items = [f"{{0x{a:X}, 0x{b:X}, {c}}}," for a, b, c in combining_ranges]

    pool, decomposition_items = [], []
    for code_point, text in sorted(decomposed.items()):
        decomposition_items.append(f"{{0x{code_point:X}, {len(pool)}, {len(text)}}},")
        pool += [f"0x{ord(c):X}," for c in text]
    assert len(pool) < 1 << 16

    composition_items = [f"{{0x{a:X}, 0x{b:X}, 0x{c:X}}}," for (a, b), c in sorted(pairs.items())]
    unstable_items = [f"{{0x{a:X}, 0x{b:X}}}," for a, b in unstable_ranges(classes, decomposed, pairs)]

    return f"""// Written by tools/make_unicode_tables.py from tokenizers {tokenizers.__version__}. Do not edit.
// clang-format off
#include "text/unicode_tables.h"

namespace tandem::text::unicode_tables {{
using enum CharacterClass;

{array("ClassRange", "kClassRanges", class_items)}
{array("CombiningRange", "kCombiningRanges", combining_items)}
{array("CodePointRange", "kUnstableRanges", unstable_items)}
{array("Decomposition", "kDecompositions", decomposition_items)}
{array("char32_t", "kDecompositionPool", pool)}
{array("Composition", "kCompositions", composition_items)}
}}  // namespace tandem::text::unicode_tables
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = render()
    if arguments.check:
        if OUTPUT.read_text() != text:
            sys.exit(f"{OUTPUT} differs from what this tokenizers {tokenizers.__version__} says")
        print("unchanged")
    else:
        OUTPUT.write_text(text)
        print(f"{OUTPUT}: {len(text)} bytes")


if __name__ == "__main__":
    main()
