"""Clients that ask a cluster without end, and hold what they are told against one process."""

import http.client
import json
import random
import threading
import time
from dataclasses import dataclass, field

from x.kills import clients
from x.kills.clients import Answer

TIMEOUT_S = 90
WORDS = "boat king stone river dog tower night bread story letter".split()


def prompts() -> list[dict]:
    """Short and long, greedy and sampled, in one piece and streamed."""
    draw = random.Random(5)
    made = []
    for number in range(24):
        words = " ".join(draw.choice(WORDS) for _ in range(draw.choice((4, 30, 120, 350))))
        body = {"model": "tiny-moe", "prompt": f"{number}: {words}", "ignore_eos": True}
        body |= {"max_tokens": draw.choice((1, 12, 60)), "seed": number}
        body |= {"temperature": 0.9 * (number % 2), "stream": number % 4 != 0}
        made.append(body)
    return made


def leave(port: int, body: dict, after_s: float) -> None:
    """Asks, and is gone after this time, whatever has come."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        time.sleep(after_s)
    except OSError:
        pass
    finally:
        connection.close()


@dataclass
class Load:
    """`count` clients until stop(). A part of them leaves before the answer is there."""

    port: int
    expected: list[str]
    count: int
    seed: int
    leaving: float = 0.1  # of the requests
    findings: list[str] = field(default_factory=list)
    answers: int = 0
    errors: list[str] = field(default_factory=list)
    left: int = 0
    worst_s: float = 0

    def start(self) -> None:
        self._bodies = prompts()
        self._stopping = threading.Event()
        self._mutex = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(client,), daemon=True)
            for client in range(self.count)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, client: int) -> None:
        draw = random.Random(self.seed * 1000 + client)
        while not self._stopping.is_set():
            index = draw.randrange(len(self._bodies))
            # A salt of its own, half of the time, keeps the prompt out of every cache.
            salt = {"cache_salt": str(draw.random())} if draw.random() < 0.5 else {}
            body = self._bodies[index] | salt
            if draw.random() < self.leaving:
                leave(self.port, body, draw.uniform(0, 0.5))
                with self._mutex:
                    self.left += 1
                continue
            start = time.monotonic()
            self._take(body, clients.ask(self.port, body), self.expected[index], start)

    def _take(self, body: dict, answer: Answer, expected: str, start: float) -> None:
        wrong = clients.finding(body, answer, expected, may_fail=True, may_be_cut=False)
        seconds = time.monotonic() - start
        with self._mutex:
            self.worst_s = max(self.worst_s, seconds)
            if wrong:
                self.findings.append(f"{wrong} (after {seconds:.1f} s)")
            if answer.error:
                self.errors.append(answer.error)
            elif not answer.cut:
                self.answers += 1
        if answer.error:
            time.sleep(0.2)  # as a client that tries again would


def leave_all(port: int, seed: int, count: int) -> None:
    """So many clients ask, and leave at random points."""
    draw = random.Random(seed)
    bodies = prompts()
    threads = [
        threading.Thread(
            target=leave,
            args=(
                port,
                bodies[draw.randrange(len(bodies))] | {"cache_salt": str(draw.random())},
                draw.uniform(0, 1.5),
            ),
        )
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
