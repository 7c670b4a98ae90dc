"""Goal: every test that docs/field-cases.md names is there, and no row of section B is without one.

Method: the page's links and the names in backquotes behind each, looked up in the linked file.
"""

import re
import unittest

from program import ROOT

PAGE = ROOT / "docs/field-cases.md"
# A link and the names in backquotes behind it, each perhaps with a remark.
LINK = r"\]\(\.\./(\S+?)\)((?:[,\s]*`\w+`(?: \([^)]*\))?)*)"
ROWS_OF_B = ["B1", "B2", "B3", "B4", "B6", "B7", "B8", "B9"]


class FieldCases(unittest.TestCase):
    def test_every_named_test_exists(self):
        names_count = 0
        for path, names in re.findall(LINK, PAGE.read_text()):
            text = (ROOT / path).read_text()
            for name in re.findall(r"`(\w+)`", names):
                names_count += 1
                self.assertRegex(text, rf"(TEST(_F|_P)?\(\w+, |def ){name}\b", path)
        self.assertGreater(names_count, 40)

    def test_every_row_of_section_b_is_told(self):
        rows = re.findall(r"^\| (B\d) \|(.*)\|$", PAGE.read_text(), re.M)
        self.assertEqual([case for case, _ in rows], ROWS_OF_B)
        for case, row in rows:
            self.assertTrue("](../" in row or "waits for" in row, case)


if __name__ == "__main__":
    unittest.main()
