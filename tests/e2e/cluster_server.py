"""A `tandem serve` with worker processes for tests: its workers from outside, streams on it."""

import http.client
import json
import os
import re
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from program import MODEL
from tandem_server import TandemServer

AT_ONCE = 32

# What must be 0 while nobody asks anything.
AT_REST = (
    "num_requests_running",
    "num_requests_waiting",
    "num_requests_awaiting_kv",
    "kv_cache_usage_perc",
    "kv_pages_leased",
    "kv_pages_quarantined",
)


def validation_chats(count: int) -> list[str]:
    """Prompts of the validation chats: their text up to the first answer."""
    texts = json.loads((MODEL / "validation.json").read_text())["chat"][:count]
    prompts = []
    for text in texts:
        head, mark, rest = text.partition("<|im_start|>assistant\n")
        think = "<think>\n\n</think>\n\n"
        prompts.append(head + mark + (think if rest.startswith(think) else ""))
    return prompts


def body_of(prompt: str, tokens: int = 24) -> dict:
    return {
        "model": "tiny-moe",
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "logprobs": 3,
        "add_special_tokens": True,
    }


def answer(server: TandemServer, prompt: str) -> list:
    return json.loads(server.call("/v1/completions", body_of(prompt)))["choices"]


def answers(server: TandemServer, prompts: list[str]) -> list:
    with ThreadPoolExecutor(AT_ONCE) as clients:
        return list(clients.map(lambda prompt: answer(server, prompt), prompts))


def wait_until(condition, what: str, seconds: float = 60):
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.02)
    return found


class Cluster(TandemServer):
    """Shape: prefill workers, their ranks, decode workers, their groups."""

    def __init__(self, shape: tuple[int, int, int, int], *more: str):
        names = ("--prefill-workers", "--prefill-tp", "--decode-workers", "--decode-dp")
        super().__init__(*sum(([n, str(v)] for n, v in zip(names, shape)), []), *more)

    def workers(self) -> dict[str, int]:
        """Process ids of those that run, by name."""
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

    def signal(self, worker: str, number: int):
        os.kill(self.workers()[worker], number)

    def ready(self) -> tuple[int, dict]:
        try:
            return 200, json.loads(self.call("/ready"))
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    def wait_until_named(self, worker: str) -> int:
        """Status of /ready once it names the worker."""

        def named():
            status, body = self.ready()
            return status if worker in body.get("reason", "") else 0

        return wait_until(named, f"/ready to name {worker}", 20)

    def wait_until_well(self):
        wait_until(lambda: self.ready() == (200, {"status": "ok"}), f"/ready: {self.ready()}")

    def wait_until_at_rest(self):
        wait_until(
            lambda: not any(self.metric(name) for name in AT_REST),
            f"rest: { {name: self.metric(name) for name in AT_REST} }",
        )

    def cpu_ticks(self) -> int:
        """Of the server and its workers."""
        ticks = super().cpu_ticks()
        for pid in self.workers().values():
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(stat[11]) + int(stat[12])
        return ticks


@dataclass
class Told:
    """What a client has heard of one request at its end."""

    text: str = ""
    is_finished: bool = False
    error: str = ""


class Streams:
    """So many streams at once, each read by a thread of its own until its end."""

    def __init__(self, server: TandemServer, bodies: list[dict]):
        self.server = server
        self.told = [Told() for _ in bodies]
        self.pool = ThreadPoolExecutor(len(bodies))
        self.futures = [
            self.pool.submit(self.read, told, body) for told, body in zip(self.told, bodies)
        ]

    def read(self, told: Told, body: dict):
        client = http.client.HTTPConnection(self.server.host, self.server.port, timeout=90)
        try:
            client.request(
                "POST",
                "/v1/completions",
                json.dumps(body | {"stream": True}),
                {"Content-Type": "application/json"},
            )
            response = client.getresponse()
            if response.status != 200:
                told.error = json.load(response)["error"]["message"]
                return
            for line in response:
                if not (match := re.match(rb"data: (\{.*)", line)):
                    continue
                event = json.loads(match[1])
                told.error += event.get("error", {}).get("message", "")
                for choice in event.get("choices", []):
                    told.text += choice["text"]
                    told.is_finished |= choice["finish_reason"] is not None
        finally:
            client.close()

    def wait_until_begun(self, count: int):
        wait_until(lambda: sum(bool(told.text) for told in self.told) >= count, "first tokens")

    def result(self) -> list[Told]:
        for future in self.futures:
            future.result(timeout=120)
        self.pool.shutdown()
        return self.told
