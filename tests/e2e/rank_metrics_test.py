"""Goal: /metrics shows what each rank did, also ranks of processes that serve no HTTP; a stopped
rank is logged by name and waited for.

Method: `tandem serve models/tiny-moe` over threads and processes, one request at a time; sums over
ranks against the model's layers and experts; SIGSTOP for three seconds in the middle of an answer.
"""

import json
import re
import signal
import socket
import subprocess
import threading
import time
import unittest

from program import MODEL, TANDEM
from tandem_server import TandemServer

CONFIG = json.loads((MODEL / "config.json").read_text())
PAIRS_PER_TOKEN = CONFIG["num_hidden_layers"] * CONFIG["num_experts_per_tok"]
REQUEST = {"model": "tiny-moe", "prompt": "Once upon a time", "max_tokens": 30, "temperature": 0,
           "ignore_eos": True}


def of_ranks(server: TandemServer, name: str) -> dict[int, float]:
    """Rank -> value of a series, summed over its other labels."""
    values: dict[int, float] = {}
    pattern = rf'^tandem:rank_{name}\{{[^}}]*rank="(\d+)"[^}}]*\}} (\S+)$'
    for rank, value in re.findall(pattern, server.call("/metrics"), re.MULTILINE):
        values[int(rank)] = values.get(int(rank), 0) + float(value)
    return values


def start(test: unittest.TestCase, *flags: str) -> TandemServer:
    server = TandemServer(*flags)
    test.addCleanup(server.process.kill)
    return server


def two_processes(test: unittest.TestCase, *more: str) -> tuple[TandemServer, subprocess.Popen]:
    """A tensor-parallel leader that serves, and the process of its follower, which does not."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    flags = ["--tp", "2", "--nnodes", "2", "--dist-init-addr", f"127.0.0.1:{port}", *more]
    follower = subprocess.Popen([TANDEM, "serve", MODEL, *flags, "--node-rank", "1"],
                                stdout=subprocess.DEVNULL)
    test.addCleanup(follower.kill)
    return start(test, *flags, "--node-rank", "0"), follower


class RankMetrics(unittest.TestCase):
    def answer(self, server: TandemServer, tokens: int = 30) -> str:
        body = server.call("/v1/completions", REQUEST | {"max_tokens": tokens})
        return json.loads(body)["choices"][0]["text"]

    def await_equal(self, server: TandemServer, name: str) -> dict[int, float]:
        """A follower publishes after its part of a step, which may be after the answer."""
        for _ in range(100):
            values = of_ranks(server, name)
            if len(set(values.values())) == 1:
                return values
            time.sleep(0.05)
        self.fail(f"{name} stays unequal: {values}")

    def test_one_rank_is_rank_zero(self):
        server = start(self)
        for name in ("steps_total", "tokens_total", "expert_pairs_total",
                     "collective_wait_seconds_total"):
            self.assertEqual(of_ranks(server, name), {0: 0}, name)  # from the start
        self.answer(server)
        tokens = of_ranks(server, "tokens_total")
        computed = server.metric("prompt_tokens_total") + server.metric("generation_tokens_total")
        self.assertEqual(tokens, {0: computed - 1})  # the last one is not computed
        self.assertEqual(of_ranks(server, "expert_pairs_total"), {0: tokens[0] * PAIRS_PER_TOKEN})
        self.assertEqual(of_ranks(server, "idle_steps_total"), {0: 0})
        self.assertEqual(server.stop(), 0)

    def test_groups_without_tokens_count_idle_steps(self):
        server = start(self, "--dp", "2")
        self.answer(server)
        tokens = of_ranks(server, "tokens_total")
        self.assertEqual(sorted(tokens), [0, 1])
        self.assertEqual(min(tokens.values()), 0)
        worker = max(tokens, key=tokens.get)
        idle = of_ranks(server, "idle_steps_total")
        self.assertLessEqual(idle[worker], 3)  # it says one step ahead what it will do
        self.assertGreaterEqual(idle[1 - worker], 29)
        pairs = of_ranks(server, "expert_pairs_total")
        self.assertEqual(sum(pairs.values()), sum(tokens.values()) * PAIRS_PER_TOKEN)
        self.assertGreater(min(pairs.values()), 0)
        self.assertGreater(max(of_ranks(server, "collective_wait_seconds_total").values()), 0)
        self.assertEqual(server.stop(), 0)

    def test_a_follower_of_another_process_is_shown(self):
        server, follower = two_processes(self)
        self.answer(server)
        tokens = self.await_equal(server, "tokens_total")
        self.assertEqual(sorted(tokens), [0, 1])
        self.assertGreater(tokens[0], 30)
        self.assertEqual(sorted(self.await_equal(server, "steps_total")), [0, 1])
        pairs = of_ranks(server, "expert_pairs_total")
        self.assertEqual(sum(pairs.values()), tokens[0] * PAIRS_PER_TOKEN)
        self.assertGreater(min(pairs.values()), 0)
        self.assertEqual(sorted(of_ranks(server, "kv_cache_usage_perc")), [0, 1])
        self.assertEqual(server.stop(), 0)
        self.assertEqual(follower.wait(timeout=20), 0)

    def test_a_stopped_rank_is_logged_and_waited_for(self):
        server, follower = two_processes(self, "--collective-late-after", "1")
        expected = self.answer(server, 400)
        answers = []
        client = threading.Thread(target=lambda: answers.append(self.answer(server, 400)))
        client.start()
        time.sleep(0.05)
        follower.send_signal(signal.SIGSTOP)
        time.sleep(3)
        self.assertEqual(answers, [], "the answer was there before the rank was stopped")
        follower.send_signal(signal.SIGCONT)
        client.join(timeout=60)
        self.assertEqual(answers, [expected])
        self.assertRegex(server.log(),
                         r'comm_rank_late rank=0 late="rank 1 of host \S+ \(process '
                         rf'{follower.pid}\)" collective=\w+ waited_ms=1\d\d\d\n')
        self.assertEqual(server.stop(), 0)
        self.assertEqual(follower.wait(timeout=20), 0)


if __name__ == "__main__":
    unittest.main()
