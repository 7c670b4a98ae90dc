"""Goal: killed ranks of a data-parallel group leave the others answering, and everybody is told.

Method: four `tandem serve` processes of one rank each with copies of all experts, or without; one
is killed while all answer, while all are idle, another after it, rank 0 too, or a rank of a tensor-
parallel group. What the others answer, also what was running, must be that of one rank, or end with
an error that names the expert and the rank.
"""

import json
import signal
import socket
import subprocess
import threading
import time
import unittest
import urllib.error
from concurrent.futures import ThreadPoolExecutor

from program import MODEL, TANDEM
from tandem_server import TandemServer, stream_chunks

SECONDS_MAX = 5.0  # from a death until the others say so
PROMPTS = ("What is 12 + 30?", "Tell me a story about a dog and a very old boat.", "Hi", "Why?")


def body_of(prompt: str, tokens: int) -> dict:
    return {
        "model": "tiny-moe",
        "prompt": prompt,
        "max_tokens": tokens,
        "seed": 7,
        "logprobs": 1,
        "ignore_eos": True,
    }


def answer(server: TandemServer, prompt: str, tokens: int = 40) -> list:
    return json.loads(server.call("/v1/completions", body_of(prompt, tokens)))["choices"]


def answers(server: TandemServer) -> list:
    return [answer(server, prompt) for prompt in PROMPTS]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Group:
    """Processes of equally many ranks, one by default. Those that only follow have no server."""

    def __init__(self, processes: int, *flags: str, tensor_parallel: int = 1, per_process: int = 1):
        ranks = processes * per_process
        self.flags = [
            *("--tp", str(tensor_parallel), "--dp", str(ranks // tensor_parallel)),
            *("--nnodes", str(processes), "--dist-init-addr", f"127.0.0.1:{free_port()}"),
            *("--max-model-len", "2048", *flags),
        ]
        self.ranks_per_leader = tensor_parallel if per_process == 1 else 1
        with ThreadPoolExecutor() as pool:  # each waits for the others before it serves
            self.ranks = list(pool.map(self.start, range(processes)))

    def start(self, rank: int) -> TandemServer | subprocess.Popen:
        flags = [*self.flags, "--node-rank", str(rank)]
        if rank % self.ranks_per_leader == 0:
            return TandemServer(*flags)
        return subprocess.Popen([TANDEM, "serve", MODEL, *flags], stdout=subprocess.DEVNULL)

    def process(self, rank: int) -> subprocess.Popen:
        member = self.ranks[rank]
        return member.process if isinstance(member, TandemServer) else member

    def kill(self, rank: int):
        self.process(rank).send_signal(signal.SIGKILL)
        self.process(rank).wait()

    def close(self):
        for rank in range(len(self.ranks)):
            self.process(rank).kill()
            self.process(rank).wait()
            if self.process(rank).stdout:
                self.process(rank).stdout.close()


class Load:
    """A stream that runs on a server until it ends; read by a thread of its own."""

    def __init__(self, server: TandemServer, prompt: str, tokens: int):
        self.text = ""
        self.started = threading.Event()
        self.client = server.post_raw("/v1/completions", body_of(prompt, tokens) | {"stream": True})
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while data := self.client.recv(1 << 16):
            self.text += data.decode()
            if "data: " in self.text:
                self.started.set()
        self.client.close()

    def pieces(self) -> list:
        self.thread.join(timeout=60)
        return stream_chunks(self.text.partition("\r\n\r\n")[2])


class Losses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        one = TandemServer("--max-model-len", "2048")
        cls.expected = answers(one)
        cls.expected_long = {prompt: answer(one, prompt, 400) for prompt in PROMPTS}
        assert one.stop() == 0

    def start(self, *arguments, **keywords) -> Group:
        group = Group(*arguments, **keywords)
        self.addCleanup(group.close)
        return group

    def await_degraded(self, server: TandemServer, lost: list[int]) -> dict:
        start = time.monotonic()
        while True:
            health = json.loads(server.call("/health"))
            if health["status"] == "degraded" and len(health["lost_ranks"]) == len(lost):
                break
            self.assertLess(time.monotonic() - start, SECONDS_MAX, health)
            time.sleep(0.02)
        for name, rank in zip(health["lost_ranks"], lost, strict=True):
            self.assertRegex(name, rf"^rank {rank} of host \S+ \(process \d+\)$")
            self.assertIn(name, health["reason"])
        self.assertEqual(json.loads(server.call("/ready"))["status"], "degraded")
        self.assertEqual(server.metric("ranks_lost"), len(lost))
        return health

    def expect_all_answer(self, servers: list[TandemServer]):
        with ThreadPoolExecutor() as pool:
            self.assertEqual(list(pool.map(answers, servers)), [self.expected] * len(servers))

    def expect_same_stream(self, load: Load, prompt: str):
        choices = [chunk["choices"][0] for chunk in load.pieces() if chunk.get("choices")]
        text = "".join(choice["text"] for choice in choices)
        logprobs = sum((c["logprobs"]["token_logprobs"] for c in choices if c["logprobs"]), [])
        expected = self.expected_long[prompt][0]
        self.assertEqual(text, expected["text"])
        self.assertEqual(logprobs, expected["logprobs"]["token_logprobs"])

    def test_with_copies_everybody_else_goes_on_while_answering(self):
        for victim in (3, 0):
            with self.subTest(victim=victim):
                group = self.start(4, "--num-redundant-experts", "16")
                others = [group.ranks[rank] for rank in range(4) if rank != victim]
                loads = [Load(server, PROMPTS[i], 400) for i, server in enumerate(others)]
                for load in loads:
                    self.assertTrue(load.started.wait(timeout=30))
                group.kill(victim)
                for server in others:
                    self.await_degraded(server, [victim])
                for i, load in enumerate(loads):
                    self.expect_same_stream(load, PROMPTS[i])
                self.expect_all_answer(others)
                self.assertEqual(others[0].stop(), 0)  # a way to end it is no failure

    def test_one_death_after_another_while_idle(self):
        group = self.start(4, "--num-redundant-experts", "48")
        lost = []
        for victim in (3, 0, 1):
            group.kill(victim)
            lost = sorted([*lost, victim])
            others = [group.ranks[rank] for rank in range(4) if rank not in lost]
            for server in others:
                self.await_degraded(server, lost)
            self.expect_all_answer(others)

    def test_two_deaths_at_once(self):
        group = self.start(4, "--num-redundant-experts", "48")
        for victim in (0, 1):
            group.process(victim).send_signal(signal.SIGKILL)
        others = [group.ranks[2], group.ranks[3]]
        for server in others:
            self.await_degraded(server, [0, 1])
        self.expect_all_answer(others)

    def test_a_process_of_several_ranks(self):
        group = self.start(2, "--num-redundant-experts", "16", per_process=2)
        load = Load(group.ranks[0], PROMPTS[1], 400)
        self.assertTrue(load.started.wait(timeout=30))
        group.kill(1)
        self.await_degraded(group.ranks[0], [2, 3])
        self.expect_same_stream(load, PROMPTS[1])
        self.expect_all_answer([group.ranks[0]])

    def test_without_copies_what_needs_a_lost_expert_is_told(self):
        group = self.start(4)
        server = group.ranks[0]
        load = Load(server, PROMPTS[1], 400)
        self.assertTrue(load.started.wait(timeout=30))
        group.kill(3)
        self.await_degraded(server, [3])
        error = load.pieces()[-1]["error"]
        name = r"expert \d+ of layer \d+, which was lost with rank 3 of host \S+ \(process \d+\)"
        self.assertRegex(error["message"], name)
        # Every prompt here is long enough to need one of the four lost experts in some layer.
        for _ in range(2):
            with self.assertRaises(urllib.error.HTTPError) as raised:
                answer(server, PROMPTS[1])
            with raised.exception as told:
                self.assertEqual(told.code, 503)
                self.assertRegex(json.load(told)["error"]["message"], name)
        self.assertEqual(server.stop(), 0)

    def test_a_tensor_parallel_group_goes_as_a_whole(self):
        for victim in (1, 2):
            with self.subTest(victim=victim):
                group = self.start(4, "--num-redundant-experts", "16", tensor_parallel=2)
                mate = victim ^ 1
                other = 2 if victim < 2 else 0
                load = Load(group.ranks[other], PROMPTS[0], 400)
                self.assertTrue(load.started.wait(timeout=30))
                group.kill(victim)
                self.assertNotEqual(group.process(mate).wait(timeout=SECONDS_MAX), 0)
                self.await_degraded(group.ranks[other], sorted([victim, mate]))
                self.expect_same_stream(load, PROMPTS[0])
                self.expect_all_answer([group.ranks[other]])


if __name__ == "__main__":
    unittest.main()
