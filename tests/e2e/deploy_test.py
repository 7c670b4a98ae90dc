"""Goal: the units and manifests of deploy/ start the program with flags that it has.

Method: of every file that runs `tandem serve` or `tandem worker`, its flags against `--help`.
"""

import re
import unittest

from program import ROOT, run

# As a unit or a manifest has it: "tandem serve ..." or "[tandem, serve, ...]".
COMMAND = r"\btandem,? (serve|worker)\b"


class Deploy(unittest.TestCase):
    def test_flags_are_those_of_the_verb(self):
        checked = []
        for file in sorted((ROOT / "deploy").rglob("*.*")):
            text = file.read_text()
            verbs = set(re.findall(COMMAND, text))
            if not verbs:
                continue
            with self.subTest(file.name):
                self.assertEqual(len(verbs), 1)
                known = set(re.findall(r"--[\w-]+", run(verbs.pop(), "--help").stdout))
                used = set(re.findall(r"(?:^|[ =])(--[a-z][\w-]+)", text, re.M))
                used -= {"--now"}  # of systemctl
                self.assertGreater(len(used), 2)
                self.assertEqual(used - known, set())
                checked.append(file.name)
        self.assertEqual(len(checked), 5)


if __name__ == "__main__":
    unittest.main()
