"""Goal: `tandem bench transfer` measures every kind at every size between two processes, over shm
and over tcp, beside the bare loop; two that were started by hand meet at an address; nothing stays
in shared memory.

Method: tiny sizes, one round; the JSON lines.
"""

import json
import os
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

from program import TANDEM, run

SIZES = (1000, 32768)


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if name.count(":") == 2}


class BenchTransfer(unittest.TestCase):
    def measure(self, *flags):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "lines.json"
            sizes = ",".join(map(str, SIZES))
            tiny = ("--rounds", 1, "--reshard-rounds", 1, "--sizes", sizes)
            done = run("bench", "transfer", *tiny, "--json", path, *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [json.loads(line) for line in path.read_text().splitlines()]

    def check(self, lines, kinds):
        self.assertEqual(
            [(line["kind"], line["bytes"]) for line in lines],
            [(kind, size) for kind in kinds for size in SIZES],
        )
        for line in lines:
            for number in ("gb_s", "ops_s", "us_p50", "us_p99", "bare_gb_s", "ratio"):
                self.assertGreater(line[number], 0, line)

    def check_reshard(self, lines):
        self.assertEqual(
            [(line["kind"], line["bytes"], line["onto"]) for line in lines],
            [("reshard", 65536, onto) for onto in ("4 equal", "1", "4 data-parallel")],
        )
        self.assertEqual(lines[0]["ratio"], 1)
        for line in lines:
            self.assertGreater(line["gb_s"], 0, line)
            self.assertGreater(line["ratio"], 0, line)

    def test_every_kind_over_shm_and_tcp(self):
        for provider in ("shm", "tcp"):
            with self.subTest(provider):
                before = shared_memory()
                lines = self.measure("--provider", provider)
                self.check(lines[:-3], ("single", "paged", "scatter"))
                self.check_reshard(lines[-3:])
                self.assertLessEqual(shared_memory(), before)

    def test_two_programs_meet_at_an_address(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        target = subprocess.Popen(
            [TANDEM, "bench", "transfer", "--interface", "127.0.0.1", "--listen", address],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(target.kill)
        self.assertIn(address, target.stdout.readline())
        flags = ("--interface", "127.0.0.1", "--kinds", "paged", "--connect", address)
        self.check(self.measure(*flags), ("paged",))
        self.assertEqual(target.wait(60), 0)
        target.stdout.close()

    def test_an_unknown_network_is_refused_with_those_there_are(self):
        done = run("bench", "transfer", "--provider", "pigeon")
        self.assertEqual(done.returncode, 1)
        self.assertIn('no provider "pigeon"', done.stderr)
        self.assertIn("tcp;ofi_rxm on lo", done.stderr)


if __name__ == "__main__":
    unittest.main()
