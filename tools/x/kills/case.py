"""One case: a group is started, one process is killed or stopped, and everything that must hold
afterwards is checked."""

import re
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from x.kills import clients, plan
from x.kills.group import MEET_TIMEOUT_S, START_TIMEOUT_S, Group
from x.kills.plan import Plan

REPORT_S = 5.0  # until every other process has told who died, and ended
END_S = 20.0  # until a group that was asked to end has ended
ANSWER_S = 0.5  # for which survivors are asked


@dataclass
class Outcome:
    plan: Plan
    findings: list[str] = field(default_factory=list)
    seconds: float = 0  # kill: until the last other process ended or went on; stop: served again
    answers_count: int = 0
    errors_count: int = 0
    logs: str = ""


class Case:
    def __init__(self, program: str, chosen: Plan, folder: Path, expected: list[str]):
        self.plan = chosen
        self.outcome = Outcome(chosen)
        self.expected = expected
        self.group = Group(program, chosen.layout, folder)
        self.clients: clients.Clients | None = None
        self.others = [n for n in range(chosen.layout.processes) if n != chosen.victim]
        self.lost = chosen.layout.lost_with(chosen.victim)
        self.hit_at = 0.0

    def run(self) -> Outcome:
        try:
            if self._reach_point():
                self._hit()
                if self.plan.kind == plan.KILL:
                    self._check_death()
                else:
                    self._check_pause()
        finally:
            self._end_clients()
            for process in self.group.processes.values():
                process.signal(signal.SIGCONT)
            self.group.kill_all()
        self.outcome.findings += self.group.leftovers()
        self.outcome.logs = self._logs()
        return self.outcome

    def _find(self, finding: str) -> None:
        self.outcome.findings.append(finding)

    def _reach_point(self) -> bool:
        """Starts processes up to the moment after which the signal comes."""
        chosen = self.plan
        waits = sorted((delay, number) for number, delay in enumerate(chosen.start_delays_s))
        start = time.monotonic()
        for delay, number in waits:
            if chosen.point == plan.HANDSHAKE and number == chosen.held_back:
                continue
            time.sleep(max(0.0, start + delay - time.monotonic()))
            self.group.start(number)
            if chosen.point == plan.BEFORE_JOINING and number == chosen.victim:
                return True  # the others start after the signal
        if chosen.point in plan.MARKS:
            return self._wait_for_mark(plan.MARKS[chosen.point])
        trouble = self.group.wait_until_up()
        if trouble:
            self._find(trouble)
            return False
        self._start_clients()
        if chosen.point == plan.IDLE:
            self._end_clients()
        return True

    def _wait_for_mark(self, mark: str) -> bool:
        victim = self.group.processes[self.plan.victim]
        deadline = time.monotonic() + START_TIMEOUT_S
        while mark not in victim.log():
            if not victim.is_running() or time.monotonic() > deadline:
                self._find(f"process {self.plan.victim} never logged {mark}")
                return False
            time.sleep(0.002)
        return True

    def _start_clients(self, is_after_hit: bool = False) -> None:
        ports = {
            number: process.port()
            for number, process in self.group.processes.items()
            if self.plan.layout.serves(number) and process.is_running()
        }
        victim = ports.get(self.plan.victim) if self.plan.kind == plan.KILL else None
        self.clients = clients.Clients(list(ports.values()), self.expected, victim)
        if is_after_hit:
            self.clients.hit()
        self.clients.start()
        while self.clients.answers_count < len(ports) and not self.clients.findings:
            if self.clients.errors:
                return
            time.sleep(0.01)

    def _end_clients(self) -> None:
        if self.clients is None:
            return
        self.clients.stop()
        self.outcome.findings += self.clients.findings
        self.outcome.answers_count += self.clients.answers_count
        self.outcome.errors_count += len(self.clients.errors)
        clear = rf"\brank ({self._ranks()}) of host \S|shutting down"
        for error in self.clients.errors:
            if not re.search(clear, error):
                self._find(f"a client is told {error!r}")
        self.clients = None

    def _hit(self) -> None:
        time.sleep(self.plan.delay_s)
        self.group.note_memory()
        if self.clients is not None and self.plan.kind == plan.KILL:
            self.clients.hit()
        victim = self.group.processes[self.plan.victim]
        victim.signal(signal.SIGKILL if self.plan.kind == plan.KILL else signal.SIGSTOP)
        self.hit_at = time.monotonic()
        if self.plan.point in (plan.BEFORE_JOINING, plan.HANDSHAKE):
            for number in range(self.plan.layout.processes):
                if number not in self.group.processes:
                    self.group.start(number)
        self.group.note_memory()

    def _has_met(self, number: int) -> bool:
        ranks = len(self.plan.layout.ranks_of(number))
        return self.group.processes[number].log().count("comm_rank_met ") == ranks

    def _check_death(self) -> None:
        # Before they have met, ranks do not know each other: then --dist-timeout ends the wait.
        limit = REPORT_S + (0 if self._has_met(self.plan.victim) else MEET_TIMEOUT_S)
        settled = self._wait_until_settled(self.hit_at + limit)
        self.outcome.seconds = time.monotonic() - self.hit_at
        self.group.processes[self.plan.victim].popen.wait()
        for number in sorted(set(self.others) - settled):
            self._find(f"process {number} neither ended nor went on {limit:.0f} s after the death")
        for number in self.others:
            process = self.group.processes[number]
            if process.is_running():
                continue
            if process.popen.returncode != 1:
                self._find(f"process {number} ended with status {process.popen.returncode}, not 1")
            if not self._names_the_dead(number):
                self._find(f"process {number} does not say that rank {self._ranks()} is gone")
        if any(self.group.processes[number].is_running() for number in settled):
            self._check_degraded()

    def _wait_until_settled(self, deadline: float) -> set[int]:
        """The other processes that have ended, or gone on without the ranks that are lost."""
        while True:
            settled = {number for number in self.others if self._is_settled(number)}
            if settled == set(self.others) or time.monotonic() > deadline:
                return settled
            time.sleep(0.005)

    def _is_settled(self, number: int) -> bool:
        if not self.group.processes[number].is_running():
            # Once all serve, only those end whose groups are lost.
            is_start = self.plan.point not in (plan.IDLE, plan.LOAD)
            return is_start or not self.plan.layout.survives(number, self.plan.victim)
        return self.plan.layout.survives(number, self.plan.victim) and self._has_gone_on(number)

    def _has_gone_on(self, number: int) -> bool:
        """Whether the process has said so in its log, and its health names what is lost."""
        process = self.group.processes[number]
        if not process.is_up() or "rank_degraded " not in process.log():
            return False
        if not self.plan.layout.serves(number):
            return True
        health = clients.health(process.port())
        return health.get("status") == "degraded" and all(
            any(re.match(rf"rank {rank} of host \S", name) for name in health["lost_ranks"])
            for rank in self.lost
        )

    def _check_degraded(self) -> None:
        """The survivors answer as before, or name the lost rank whose expert is missing."""
        if self.clients is None:
            self._start_clients(is_after_hit=True)
        time.sleep(ANSWER_S)
        self._end_clients()
        if "--num-redundant-experts" in self.plan.layout.flags and self.outcome.answers_count == 0:
            self._find("no answer, though every expert has a second rank")
        self._check_end()

    def _ranks(self) -> str:
        return "|".join(str(rank) for rank in sorted(self.lost))

    def _names_the_dead(self, number: int) -> bool:
        last = self.group.processes[number].log().strip().rpartition("\n")[2]
        names = self._ranks()
        if not self._has_met(number) and not self._has_met(self.plan.victim):
            # Who comes after the others gave up knows no more than that rank 0 is not there.
            names += "|0"
        return re.search(rf"^tandem serve: .*\brank ({names}) of host \S", last) is not None

    def _check_pause(self) -> None:
        time.sleep(max(0.0, self.hit_at + self.plan.stop_s - time.monotonic()))
        self.group.processes[self.plan.victim].signal(signal.SIGCONT)
        resumed_at = time.monotonic()
        trouble = self.group.wait_until_up()
        if trouble:
            self._find(trouble)
            return
        if self.clients is None:
            self._start_clients()
        self._end_clients()
        self.outcome.seconds = time.monotonic() - resumed_at
        late = rf'(late|silent|ranks|missing)="[^"]*\brank ({self._ranks()}) of host \S'
        if not any(re.search(late, self.group.processes[n].log()) for n in self.others):
            self._find(f"no process logs that rank {self._ranks()} is late")
        self._check_end()

    def _check_end(self) -> None:
        for process in self.group.processes.values():
            if process.is_running():
                process.signal(signal.SIGTERM)
        everybody = [n for n, process in self.group.processes.items() if process.is_running()]
        for number in self.group.wait_for_ends(everybody, time.monotonic() + END_S):
            self._find(f"process {number} does not end on SIGTERM")
        # With data parallelism whoever ends first takes experts along: others may tell of a loss.
        good = (0,) if self.plan.layout.data == 1 else (0, 1)
        for number in everybody:
            process = self.group.processes[number]
            if not process.is_running() and process.popen.returncode not in good:
                self._find(f"process {number} ended with status {process.popen.returncode}")

    def _logs(self) -> str:
        parts = []
        for number, process in sorted(self.group.processes.items()):
            lines = process.log().strip().splitlines()
            ended = "" if process.ended_at is None else f" +{process.ended_at - self.hit_at:.2f} s"
            parts.append(f"--- process {number}, status {process.popen.returncode}{ended}")
            parts += [f"    {line}" for line in lines[-25:]]
        return "\n".join(parts)
