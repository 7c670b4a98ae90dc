"""Goal: `tandem bench comm` measures every collective at every size asked for, and what it says the
ranks put is what the collectives' headers promise.

Method: tiny sizes, one round; the JSON lines against the formulas.
"""

import itertools
import json
import tempfile
import unittest
from pathlib import Path

from program import run

RANKS, TOKENS, HIDDEN, K, EXPERTS = (2, 3), (1, 5), 48, 2, 6
FLOAT = 4


def put_bytes(line):
    """Of all ranks in one call; None where it depends on the routing."""
    n = line["ranks"]
    message = line.get("tokens", 0) * HIDDEN * FLOAT
    return {
        "barrier": 0,
        "all_gather": n * (n - 1) * message,
        "all_reduce_one_shot": n * (n - 1) * message,
        "all_reduce_two_shot": 2 * (n - 1) * message,
        "broadcast": (n - 1) * (message + 8),
        "gather_blocks": (n - 1) * message,
        "expert_select": 0,
        "expert_combine": n * (n - 1) * message,  # short messages go one-shot
        "expert_exchange": None,
    }[line["collective"]]


class BenchComm(unittest.TestCase):
    def measure(self, *flags):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "lines.json"
            done = run("bench", "comm", "--rounds", 1, "--hidden", HIDDEN, "--top-k", K,
                       "--experts", EXPERTS, "--json", path, *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [json.loads(line) for line in path.read_text().splitlines()]

    def test_every_cell_is_measured_and_puts_what_its_header_says(self):
        lines = self.measure("--ranks", ",".join(map(str, RANKS)),
                             "--tokens", ",".join(map(str, TOKENS)))
        cells = [(line["collective"], line["ranks"], line.get("tokens"), line.get("dtype"))
                 for line in lines]
        rows = ("all_gather", "all_reduce_one_shot", "all_reduce_two_shot", "broadcast",
                "gather_blocks")
        experts = ("expert_select", "expert_combine", "expert_exchange")
        self.assertCountEqual(
            cells,
            [*itertools.product(("barrier",), RANKS, (None,), (None,)),
             *itertools.product(rows, RANKS, TOKENS, (None,)),
             *itertools.product(experts, RANKS, TOKENS, ("f32", "bf16"))])
        for line in lines:
            with self.subTest(line=line):
                self.assertGreater(line["us"], 0)
                self.assertLessEqual(line["us_p50"], line["us_p99"])
                expected = put_bytes(line)
                if expected is not None:
                    self.assertEqual(line["bytes_put"], expected)

    def test_refuses_more_experts_per_token_than_there_are(self):
        done = run("bench", "comm", "--top-k", 9, "--experts", 8)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--top-k at most --experts", done.stderr)

    def test_refuses_what_is_too_large_to_count(self):
        for flags, told in (
            (("--tokens", "9223372036854775807"), "must be 1 to 1048576"),
            (("--experts", "2147483647"), "must be 1 to 1048576"),
            (("--tokens", "1048576", "--hidden", "1048576"), "at most 268435456"),
        ):
            with self.subTest(flags):
                done = run("bench", "comm", *flags)
                self.assertEqual(done.returncode, 1)
                self.assertIn(told, done.stderr)


if __name__ == "__main__":
    unittest.main()
