"""Goal: docs/flags.md names exactly the flags that the program has, with their defaults.

Method: the verbs and flags of `--help`, verb by verb, against the tables of the page; a command
line with words too many.
"""

import re
import unittest

from program import MODEL, ROOT, run


def verbs(*path):
    """Every verb that does something: ("serve",), ("bench", "engine"), ..."""
    printed = run(*path, "--help").stdout
    _, _, below = printed.partition("Subcommands:\n")
    names = re.findall(r"^  (\w+)", below, re.M)
    if not names:
        return [path]
    return [verb for name in names for verb in verbs(*path, name)]


def printed_flags(verb):
    """Flag -> its default, None where help prints none."""
    flags = {}
    for line in run(*verb, "--help").stdout.splitlines():
        if not (option := re.match(r"  (--\S+)( [A-Z]+(?::\{.*?\})?(?:=(\S+))?)?", line)):
            continue
        for name in re.findall(r"--[\w-]+", option[1]):
            default = option[3]
            flags[name] = None if default in (None, "[]") else default.strip("[]")
    return flags


def sections():
    """Heading -> text of each second-level section of the page."""
    page = (ROOT / "docs/flags.md").read_text()
    return dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", page, re.M | re.S))


def documented_flags(heading, page):
    """Flag -> default column, of a section and of the groups that it links to."""
    text = page[heading]
    rows = re.findall(r"^\| `(--[\w-]+)` \|([^|]*)\|", text, re.M)
    flags = {name: default.strip() for name, default in rows}
    for group in re.findall(r"\]\(#([\w-]+)\)", text):
        flags |= documented_flags(group.replace("-", " ").capitalize(), page)
    return flags


class Flags(unittest.TestCase):
    def test_the_page_is_about_the_verbs_there_are(self):
        page = {heading for heading in sections() if heading.startswith("tandem ")}
        self.assertEqual(page, {" ".join(("tandem", *verb)) for verb in verbs()})

    def test_each_verb_has_the_flags_that_the_page_says(self):
        page = sections()
        for verb in verbs():
            heading = " ".join(("tandem", *verb))
            with self.subTest(heading):
                printed = printed_flags(verb)
                documented = documented_flags(heading, page)
                self.assertEqual(sorted(documented), sorted(printed))
                for name, default in printed.items():
                    if default is not None:
                        self.assertEqual(documented[name].strip("`"), default, name)

    def test_words_that_are_not_expected_are_printed_as_they_were_typed(self):
        refused = run("generate", MODEL, "a prompt", "one", "--two", "three")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("arguments were not expected: one --two three\n", refused.stderr)


if __name__ == "__main__":
    unittest.main()
