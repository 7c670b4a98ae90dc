"""A `tandem serve` with workers of its own, seen from outside."""

import http.client
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from x.chaos.plan import Shape
from x.shell import ROOT, Failed

MODEL = "models/tiny-moe"
START_S = 120
# A small cache, so that requests wait for pages and are preempted.
SMALL = ("--max-model-len", "1024", "--max-num-seqs", "16", "--kv-cache-tokens", "4096")

# What must be 0 when nobody asks anything.
AT_REST = (
    "num_requests_running",
    "num_requests_waiting",
    "num_requests_awaiting_kv",
    "kv_cache_usage_perc",
    "kv_pages_leased",
    "kv_pages_quarantined",
)


class Cluster:
    def __init__(self, program: str, shape: Shape | None, log: Path):
        self.log_path = log
        command = [program, "serve", MODEL, "--port", "0", "--disable-log-requests", *SMALL]
        if shape is not None:
            command += shape.flags
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        deadline = time.monotonic() + START_S
        while not (match := re.search(r"serving at http://\S+:(\d+)", self.log())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise Failed(f"the server does not come up:\n{self.log()}")
            time.sleep(0.02)
        self.port = int(match[1])

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def unexpected_ends(self) -> list[str]:
        """Lines of the supervisor about workers that nobody told to end."""
        return [
            line
            for line in self.log().splitlines()
            if re.match(r"\S+ ended with", line)
            and "signal 9" not in line
            and "exit code 0" not in line
        ]

    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, seconds: float) -> int | None:
        """Exit code after SIGTERM; none when it does not end in time."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def workers(self) -> dict[str, int]:
        """Process ids of the workers that run, by name."""
        pids = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_text().split("\0")
            except OSError:
                continue
            if f"--parent-pid={self.process.pid}" in words:
                name = next(word[7:] for word in words if word.startswith("--name="))
                pids[name] = int(folder.name)
        return pids

    def signal_worker(self, name: str, number: int) -> int | None:
        """Process id, none when it does not run."""
        pid = self.workers().get(name)
        if pid is not None:
            os.kill(pid, number)
        return pid

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def trouble(self) -> str:
        """Why it is not wholly well; empty when it is."""
        try:
            status, body = self.get("/ready")
        except OSError as failure:
            return f"no answer: {failure}"
        told = json.loads(body)
        if status == 200 and told["status"] == "ok":
            return ""
        return f"{status} {told['status']}: {told.get('reason')}"

    def at_rest(self) -> dict[str, float]:
        try:
            text = self.get("/metrics")[1]
        except OSError as failure:
            return {f"no answer: {failure}": 1}
        values = {}
        for name in AT_REST:
            match = re.search(rf"^tandem:{name}\{{[^}}]*\}} (\S+)$", text, re.M)
            values[name] = float(match[1])
        return values
