"""Goal: a model's own list of runs is read as documented, and only a complete search without
errors, or the failure that was asked for, passes.
Method: texts of models and of the verifier's answers; where Spin is installed, one tiny model.
"""

import shutil
import tempfile
import unittest
from pathlib import Path

from x import models
from x.shell import Failed

MODEL = Path("toy.pml")
GOOD = "State-vector 20 byte, depth reached 3, errors: 0\n  12 states, stored\n"
BAD = "pan:1: assertion violated safe (at depth 4)\nWarning: Search not completed\nerrors: 1\n"
TOY = """/* Counts to LIMIT.
 * verify LIMIT=2
 * break LIMIT=3 fails safe
 */
bool safe = true;
active proctype Count() {
  byte i = 0;
  do
  :: i < LIMIT -> i++; safe = (i < 3); assert(safe)
  :: i == LIMIT -> break
  od
}
"""


class ParseTest(unittest.TestCase):
    def test_runs_of_the_first_comment(self):
        runs = "/* To verify is:\n * verify\n * verify A B=2\n * break C fails safe\n */\n"
        text = runs + "/*\n * verify X */"
        self.assertEqual(
            models.parse(MODEL, text),
            [
                models.Run(MODEL, (), None),
                models.Run(MODEL, ("A", "B=2"), None),
                models.Run(MODEL, ("C",), "safe"),
            ],
        )

    def test_what_is_no_run_is_refused(self):
        for line in ("verify a", "break A", "break A fails ", "verify A fails safe"):
            with self.assertRaisesRegex(Failed, "is no run"):
                models.parse(MODEL, f"/*\n * verify\n * {line}\n */")
        with self.assertRaisesRegex(Failed, "nothing that is to be verified"):
            models.parse(MODEL, "/*\n * break A fails safe\n */")


class ComplaintTest(unittest.TestCase):
    def complaint(self, output: str, fails: str | None = None) -> str | None:
        return models.complaint(models.Run(MODEL, (), fails), output)

    def test_only_a_complete_search_is_a_proof(self):
        self.assertIsNone(self.complaint(GOOD))
        self.assertEqual(self.complaint(BAD), "safe fails")
        self.assertIn("came to no end", self.complaint("spin: syntax error"))
        self.assertIn("no assertion", self.complaint("pan:1: invalid end state\nerrors: 1\n"))
        for sign in ("error: max search depth too small", "pan: reached -DMEMLIM bound"):
            self.assertIn("not all states", self.complaint(sign + "\n" + GOOD))

    def test_a_broken_model_fails_as_it_says(self):
        self.assertIsNone(self.complaint(BAD, "safe"))
        self.assertEqual(self.complaint(BAD, "live"), "safe fails, not live")
        self.assertIn("holds, but safe should fail", self.complaint(GOOD, "safe"))


@unittest.skipIf(shutil.which("spin") is None, "Spin is not installed")
class SearchTest(unittest.TestCase):
    def test_a_tiny_model(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "toy.pml"
            path.write_text(TOY)
            for run in models.parse(path, TOY):
                self.assertIsNone(models.complaint(run, models.search(run)), run.name)


if __name__ == "__main__":
    unittest.main()
