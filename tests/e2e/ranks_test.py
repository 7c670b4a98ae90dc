"""Goal: a model spread over ranks answers as on one rank, and a dead rank is told.

Method: `tandem serve` with layouts of threads and of processes on a free port, the same seeded
requests to each and to one rank; then a rank's process is killed.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from program import MODEL, TANDEM, run
from tandem_server import TandemServer

REQUESTS = [
    {"messages": [{"role": "user", "content": text}], "max_tokens": 40, "seed": 7, "logprobs": True}
    for text in ("What is 12 + 30?", "Tell me a story about a dog and a very old boat.", "Hi")
]

EPLB = ["--enable-eplb", "--eplb-step-interval", "1", "--num-redundant-experts", "4"]


def answers(server: TandemServer) -> list:
    bodies = [{"model": "tiny-moe"} | request for request in REQUESTS]
    return [json.loads(server.call("/v1/chat/completions", body))["choices"] for body in bodies]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        one = TandemServer()
        cls.expected = answers(one)
        assert one.stop() == 0

    def expect_same(self, *flags: str):
        server = TandemServer(*flags)
        self.assertEqual(answers(server), self.expected)
        self.assertEqual(server.stop(), 0)

    def test_threads(self):
        self.expect_same("--tensor-parallel-size", "2")
        self.expect_same("--data-parallel-size", "2", "--enable-expert-parallel")
        self.expect_same("--tp", "2", "--dp", "2", "--expert-parallel-size", "4")

    def test_experts_that_follow_their_load(self):
        self.expect_same("--dp", "4", *EPLB)
        self.expect_same("--tp", "2", "--dp", "2", *EPLB, "--eplb-window-size", "8")
        self.expect_same("--tp", "8", "--dp", "3", "--num-redundant-experts", "8")

    def processes(self, *more: str) -> tuple[TandemServer, subprocess.Popen]:
        flags = ["--tensor-parallel-size", "2", "--nnodes", "2", *more]
        flags += ["--dist-init-addr", f"127.0.0.1:{free_port()}"]
        follower = subprocess.Popen(
            [TANDEM, "serve", MODEL, *flags, "--node-rank", "1"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        return TandemServer(*flags, "--node-rank", "0"), follower

    def test_processes(self):
        for more in ([], EPLB):
            server, follower = self.processes(*more)
            self.assertEqual(answers(server), self.expected)
            self.assertEqual(server.stop(), 0)
            self.assertEqual(follower.wait(timeout=20), 0)
            follower.stderr.close()

    def test_data_parallel_processes_serve_each_for_itself(self):
        flags = ["--data-parallel-size", "2", "--nnodes", "2"]
        flags += ["--dist-init-addr", f"127.0.0.1:{free_port()}"]

        def start(rank: int) -> TandemServer:
            return TandemServer(*flags, "--node-rank", str(rank))

        with ThreadPoolExecutor() as pool:  # each waits for the other before it serves
            servers = list(pool.map(start, range(2)))
            self.assertEqual(list(pool.map(answers, servers)), [self.expected] * 2)
            self.assertEqual(answers(servers[1]), self.expected)  # the other joins without tokens
            # Whoever ends first takes the experts along, so the other's status may tell of a loss.
            list(pool.map(TandemServer.stop, servers))

    def test_a_killed_process_ends_the_group(self):
        for busy in (False, True):
            server, follower = self.processes()
            clients = []
            if busy:
                body = {"model": "tiny-moe", "prompt": "Once", "max_tokens": 4000, "stream": True}
                clients = [server.post_raw("/v1/completions", body)]
                clients[0].recv(1)
            follower.kill()
            self.assertNotEqual(server.process.wait(timeout=5), 0)
            server.process.stdout.close()
            follower.wait()
            follower.stderr.close()
            for client in clients:
                client.close()
        server, follower = self.processes()
        server.process.send_signal(signal.SIGKILL)
        self.assertNotEqual(follower.wait(timeout=5), 0)
        self.assertRegex(follower.stderr.read(), "rank 0 of host")
        server.process.wait()
        server.process.stdout.close()
        follower.stderr.close()

    def test_processes_with_unequal_checkpoints_of_one_name_do_not_meet(self):
        def other_config(folder: Path):
            config = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps(config | {"rope_theta": 100.0}))

        def other_weights(folder: Path):
            with (folder / "model-00002-of-00002.safetensors").open("r+b") as file:
                file.seek(-6_000_000, os.SEEK_END)
                file.write(bytes(4_000_000))

        for change in (other_config, other_weights):
            with self.subTest(change.__name__), tempfile.TemporaryDirectory() as scratch:
                other = Path(scratch) / MODEL.name
                shutil.copytree(MODEL, other)
                change(other)
                flags = ["--tp", "2", "--nnodes", "2", "--dist-timeout", "3", "--port", "0"]
                flags += ["--dist-init-addr", f"127.0.0.1:{free_port()}", "--node-rank"]
                leader = subprocess.Popen(
                    [TANDEM, "serve", MODEL, *flags, "0"],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                self.addCleanup(leader.wait)
                self.addCleanup(leader.kill)
                follower = subprocess.run(
                    [TANDEM, "serve", other, *flags, "1"],
                    capture_output=True,
                    text=True,
                    timeout=30,
                )
                self.assertEqual(follower.returncode, 1)
                self.assertIn("content of config.json and weights", follower.stderr)
                self.assertEqual(leader.wait(timeout=30), 1)

    def test_what_does_not_fit_is_refused_by_name(self):
        for flags, text in (
            (["--tp", "3"], "--tensor-parallel-size 3: 8 query heads"),
            (["--dp", "32"], "16 experts on 32 ranks"),
            (["--dp", "32", "--num-redundant-experts", "15"], "--num-redundant-experts 16"),
            (["--dp", "2", "--num-redundant-experts", "17"], "--num-redundant-experts 16"),
            (["--enable-eplb"], "--enable-eplb: with one rank"),
            (["--dp", "2", "--eplb-step-interval", "0"], "--eplb-step-interval"),
            (["--dp", "2", "--expert-parallel-size", "1"], "--expert-parallel-size 1"),
            (["--tp", "2", "--nnodes", "2"], "--dist-init-addr"),
            (["--tp", "2", "--dist-init-addr", "127.0.0.1:9"], "without --nnodes above 1"),
            (["--tp", "2", "--node-rank", "0"], "--node-rank requires --nnodes"),
        ):
            refused = run("serve", MODEL, *flags)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(text, refused.stderr)

    def test_a_taken_port_is_one_error_and_ends_all_ranks(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            refused = run("serve", MODEL, "--port", port, "--data-parallel-size", "2")
        self.assertEqual(refused.returncode, 1)
        reason = f"cannot listen on 127.0.0.1:{port}: Address already in use"
        self.assertEqual(
            refused.stderr, f"tandem serve: {reason}; choose another --host or --port\n"
        )


if __name__ == "__main__":
    unittest.main()
