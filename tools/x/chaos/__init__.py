"""`./x chaos`: workers of a cluster are killed, stopped and told to end at random points, and
clients leave, while many streams run. Nobody may hang, lie, leak or remain."""

import collections
import os
import random
import re
import signal
import tempfile
import time
from pathlib import Path

from x.chaos import load, plan
from x.chaos.cluster import Cluster
from x.kills import clients
from x.shell import Failed

STREAMS = 64
LEAVING = 100  # clients that leave at once
WELL_S = 60  # until a cluster is well again after an event
REST_S = 30  # until everything is given back after the last request
END_S = 60
ENDS_MAX = 3  # of one worker within the time in which the supervisor counts them
ENDS_WINDOW_S = 65

# Errors that say who did not do what.
CLEAR = re.compile(r"\b(prefill|decode)-\d|shutting down")


def answers_of_one_process(program: str, folder: Path) -> list[str]:
    """The texts that every cluster must give, too."""
    alone = Cluster(program, None, folder / "alone.log")
    try:
        answers = [clients.ask(alone.port, body) for body in load.prompts()]
    finally:
        alone.kill()
    for answer in answers:
        if not answer.finished:
            raise Failed(f"one process gives no answer: {answer}")
    return [answer.text for answer in answers]


class Run:
    """One cluster under load, from its start to its end."""

    def __init__(self, program: str, seed: int, shape: plan.Shape, folder: Path,
                 expected: list[str]):
        self.seed = seed
        self.shape = shape
        self.expected = expected
        self.findings: list[str] = []
        self.cluster = Cluster(program, shape, folder / f"{seed}.log")
        self.ends: dict[str, list[float]] = collections.defaultdict(list)
        self.counts: collections.Counter = collections.Counter()

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        try:
            self._check_rest()
            number = 0
            for number, event in enumerate(plan.events_of_seed(self.seed, self.shape)):
                if time.monotonic() > end or self.findings:
                    break
                self._one(number, event)
            self._check_end()
        finally:
            self.cluster.kill()
            self._check_remains()

    def _find(self, finding: str) -> None:
        self.findings.append(finding)

    def _one(self, number: int, event: plan.Event) -> None:
        recent = [t for t in self.ends[event.worker] if time.monotonic() - t < ENDS_WINDOW_S]
        if event.kind in (plan.KILL, plan.END) and len(recent) >= ENDS_MAX:
            return
        begin = time.monotonic()
        clients_of_it = load.Load(
            self.cluster.port, self.expected, STREAMS, seed=self.seed * 1000 + number
        )
        clients_of_it.start()
        time.sleep(event.pause_s)
        told = self._happen(event, number)
        well_s = self._wait_until_well()
        time.sleep(0.5)
        clients_of_it.stop()
        self.findings += clients_of_it.findings[:5]
        unclear = [error for error in clients_of_it.errors if not CLEAR.search(error)]
        if unclear:
            self._find(f"a client is told {unclear[0]!r}, and {len(unclear) - 1} alike")
        rest_s = self._check_rest()
        self.findings += self.cluster.unexpected_ends()
        self._check_answers()
        self.counts.update(
            {event.kind: 1, "answers": clients_of_it.answers, "left": clients_of_it.left,
             "errors": len(clients_of_it.errors)}
        )
        print(
            f"{number} {event.title}: {'FAILED' if self.findings else 'ok'}, "
            f"{clients_of_it.answers} answers, {len(clients_of_it.errors)} errors, "
            f"worst {clients_of_it.worst_s:.1f} s, well after {well_s:.1f} s, "
            f"at rest after {rest_s:.1f} s, {time.monotonic() - begin:.1f} s in all; told: {told}",
            flush=True,
        )
        for text, count in collections.Counter(clients_of_it.errors).most_common(2):
            print(f"    {count} x {text[:300]}", flush=True)

    def _happen(self, event: plan.Event, number: int) -> str:
        if event.kind == plan.CANCEL:
            load.leave_all(self.cluster.port, self.seed + number, LEAVING)
            return "-"
        signals = {plan.KILL: signal.SIGKILL, plan.STOP: signal.SIGSTOP, plan.END: signal.SIGTERM}
        pid = self.cluster.signal_worker(event.worker, signals[event.kind])
        if pid is None:
            return "it does not run"
        if event.kind == plan.STOP:
            time.sleep(event.stop_s)
            told = self.cluster.trouble()
            os.kill(pid, signal.SIGCONT)
            if event.stop_s > 4 and event.worker not in told:
                self._find(f"/ready does not name {event.worker}, but says {told!r}")
            return told
        self.ends[event.worker].append(time.monotonic())
        return self._wait_until_told(event.worker)

    def _wait_until_told(self, worker: str) -> str:
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            told = self.cluster.trouble()
            if worker in told:
                return told
            time.sleep(0.005)
        self._find(f"/ready never named {worker}")
        return ""

    def _wait_until_well(self) -> float:
        start = time.monotonic()
        told = "never"
        while time.monotonic() < start + WELL_S and self.cluster.is_running():
            told = self.cluster.trouble()
            if not told:
                return time.monotonic() - start
            time.sleep(0.02)
        self._find(f"the cluster is not well after {WELL_S} s: {told}")
        return WELL_S

    def _check_rest(self) -> float:
        start = time.monotonic()
        values: dict[str, float] = {}
        while time.monotonic() < start + REST_S and self.cluster.is_running():
            values = self.cluster.at_rest()
            if not any(values.values()):
                return time.monotonic() - start
            time.sleep(0.05)
        self._find(f"after {REST_S} s without requests: {values}")
        return REST_S

    def _check_answers(self) -> None:
        """Nothing is lost any more, so everything is answered."""
        for index, body in enumerate(load.prompts()[:6]):
            salt = {"cache_salt": str(random.random())}
            answer = clients.ask(self.cluster.port, body | salt)
            wrong = clients.finding(body, answer, self.expected[index], False, False)
            if wrong:
                self._find(f"afterwards: {wrong}")

    def _check_end(self) -> None:
        if not self.cluster.is_running():
            return self._find(f"the server ended by itself, {self.cluster.process.returncode}")
        code = self.cluster.end(END_S)
        if code != 0:
            self._find(f"on SIGTERM the server ends with {code}")

    def _check_remains(self) -> None:
        deadline = time.monotonic() + 5
        while self.cluster.workers() and time.monotonic() < deadline:
            time.sleep(0.01)
        for name, pid in self.cluster.workers().items():
            self._find(f"{name} (process {pid}) is left behind")
            os.kill(pid, signal.SIGKILL)


def run(program: str, seconds: float, seed: int | None) -> None:
    chosen = random.SystemRandom().randrange(10**6) if seed is None else seed
    shape = plan.shape_of_seed(chosen)
    print(f"seed {chosen}: {shape.name}, {STREAMS} streams", flush=True)
    with tempfile.TemporaryDirectory(prefix="tandem-chaos-") as name:
        expected = answers_of_one_process(program, Path(name))
        one = Run(program, chosen, shape, Path(name), expected)
        one.run(seconds)
        print(", ".join(f"{count} {what}" for what, count in one.counts.items()))
        if one.findings:
            print("\n".join(one.findings))
            lines = one.cluster.log().splitlines()
            print("\n".join([line for line in lines if "request_failed" not in line][-60:]))
            raise Failed(f"{len(one.findings)} findings; again: ./x chaos --seed {chosen}")
