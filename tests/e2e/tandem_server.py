"""A `tandem serve` process for tests: starts it, talks to it, watches it from outside."""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class TandemServer:
    """A model, models/tiny-moe by default, on a free port, until stop()."""

    def __init__(self, *arguments: str, model: str | Path = ROOT / "models/tiny-moe"):
        command = [ROOT / "build/release/apps/tandem", "serve", model, "--port", "0", *arguments]
        self.errors = tempfile.NamedTemporaryFile("a")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        self.final_log = None
        self.report = ""
        for line in self.process.stdout:
            self.report += line
            if match := re.search(r"serving at http://(\S+):(\d+)", line):
                self.host, self.port = match[1], int(match[2])
                return
        raise AssertionError(f"the server ended before it printed its address: {self.log()}")

    def stop(self) -> int:
        """Ends it as a user would; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=60)
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.final_log = self.log()
            self.errors.close()

    def log(self) -> str:
        """What it has written to standard error so far."""
        if self.final_log is not None:
            return self.final_log
        return Path(self.errors.name).read_text()

    def call(self, path: str, body: dict | None = None, timeout: float = 60) -> str:
        request = urllib.request.Request(
            f"http://{self.host}:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.read().decode()

    def metric(self, name: str, labels: str = "") -> float:
        pattern = rf"^tandem:{name}\{{[^}}]*{labels}[^}}]*\}} (\S+)$"
        return float(re.search(pattern, self.call("/metrics"), re.MULTILINE)[1])

    def connect(self, timeout: float = 60) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def post_raw(self, path: str, body: dict, client: socket.socket | None = None) -> socket.socket:
        """Sends a request and reads nothing. HTTP/1.0, so the answer ends with the connection."""
        client = client or self.connect()
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.0\r\nContent-Type: application/json\r\n"
        client.sendall(head.encode() + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return client

    def cpu_ticks(self) -> int:
        """User and system time of all its threads so far, in ticks of SC_CLK_TCK."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(stat[11]) + int(stat[12])

    def wakeups(self) -> int:
        """How often its threads went to sleep so far, so one for each time that one woke up."""
        count = 0
        for status in Path(f"/proc/{self.process.pid}/task").glob("*/status"):
            line = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status.read_text(), re.MULTILINE)
            count += int(line[1])
        return count

    def resident_bytes(self) -> int:
        statm = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(statm[1]) * os.sysconf("SC_PAGE_SIZE")


def stream_chunks(body: str) -> list[dict]:
    """The JSON chunks of a whole event stream, which must end with [DONE]."""
    events = [line[6:] for line in body.splitlines() if line.startswith("data: ")]
    if not events or events.pop() != "[DONE]":
        raise AssertionError(f"the stream was cut after {len(events)} events: ...{body[-200:]!r}")
    return [json.loads(event) for event in events]
