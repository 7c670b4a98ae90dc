"""Goal: over shm, which cannot close a writer's access, a killed prefill worker costs no page.

Method: workers of one host, started by hand; the prefill worker is killed in the middle of
hand-offs. Its requests must be computed elsewhere soon, and all pages come back while it is away.
"""

import random
import socket
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster_server import AT_REST, Cluster, body_of, wait_until
from program import MODEL, ROOT
from tandem_server import TandemServer

WORDS = "boat king stone river dog tower night bread".split()


def free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % listener.getsockname()[1]


class ShmLoss(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        secret = Path(folder.name) / "secret"
        secret.touch(0o600)
        secret.write_text("0123456789abcdef" * 4)
        self.addresses = {"p0": free_address(), "d0": free_address()}
        workers = "prefill:p0@{p0},decode:d0@{d0}".format(**self.addresses)
        self.cluster = ("--discovery", workers, "--cluster-secret-file", str(secret))
        self.prefill = self.start("p0", "prefill")
        self.start("d0", "decode")
        self.server = TandemServer(*self.cluster)
        self.addCleanup(self.server.stop)
        wait_until(lambda: Cluster.ready(self.server) == (200, {"status": "ok"}), "the workers")

    def start(self, name: str, role: str) -> subprocess.Popen:
        command = [ROOT / "build/release/apps/tandem", "worker", MODEL, "--role", role]
        command += ["--name", name, "--listen", self.addresses[name], "--threads", "1"]
        command += ["--data-provider", "shm", *self.cluster]
        worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        return worker

    def test_a_killed_prefill_worker_costs_no_page(self):
        prompts = [" ".join(random.choice(WORDS) for _ in range(900)) for _ in range(12)]
        with ThreadPoolExecutor(len(prompts)) as clients:
            asked = [
                clients.submit(self.server.call, "/v1/completions", body_of(prompt, 4))
                for prompt in prompts
            ]
            wait_until(lambda: self.server.metric("num_requests_awaiting_kv") > 0, "a hand-off")
            self.prefill.kill()
            # Far below the time of a hand-off (60 s), and that of nobody's answer (never).
            wait_until(
                lambda: all(one.done() for one in asked)
                and not any(self.server.metric(name) for name in AT_REST),
                "rest",
                40,
            )


if __name__ == "__main__":
    unittest.main()
