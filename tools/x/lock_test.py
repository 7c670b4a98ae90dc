"""Goal: of two ./x in one checkout, one builds and the other waits and says so.
Method: a second process takes the lock that this one holds; what it prints tells how far it came.
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from x import lock
from x.shell import ROOT

SECOND = """
import sys
from pathlib import Path
from x import lock
lock.FOLDER = Path(sys.argv[1])
with lock.hold("release"):
    print("built", file=sys.stderr)
"""


class LockTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "build"  # made when it is first needed
        patch = mock.patch.object(lock, "FOLDER", self.folder)
        patch.start()
        self.addCleanup(patch.stop)

    def second(self) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-c", SECOND, self.folder],
            cwd=ROOT / "tools",
            stderr=subprocess.PIPE,
            text=True,
        )

    def test_the_second_waits_and_says_so(self):
        with lock.hold("release"):
            waiting = self.second()
            line = waiting.stderr.readline()
            self.assertEqual(line, "x: another ./x is building release here; waiting for it\n")
        rest = waiting.communicate(timeout=60)[1]
        self.assertEqual((rest, waiting.returncode), ("built\n", 0))

    def test_nobody_waits_for_another_build_or_one_that_ended(self):
        with lock.hold("release"):
            pass
        with lock.hold("debug"):
            rest = self.second().communicate(timeout=60)[1]
        self.assertEqual(rest, "built\n")

    def test_a_program_that_is_started_holds_no_lock(self):
        with lock.hold("release"):
            started = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        rest = self.second().communicate(timeout=60)[1]
        started.communicate(timeout=60)
        self.assertEqual(rest, "built\n")


if __name__ == "__main__":
    unittest.main()
