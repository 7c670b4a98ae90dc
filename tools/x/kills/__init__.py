"""`./x kills`: ranks are killed or stopped at random points, and nobody may hang, lie or remain."""

import collections
import itertools
import random
import signal
import tempfile
import time
from pathlib import Path

from x.kills import clients, group, plan
from x.kills.case import Case, Outcome
from x.shell import Failed


def answers_of_one_rank(program: str, folder: Path) -> list[str]:
    """The texts that every layout must give, too."""
    alone = group.Group(program, plan.Layout(1, 1, 1), folder)
    server = alone.start(0)
    try:
        trouble = alone.wait_until_up()
        if trouble:
            raise Failed(f"{trouble}:\n{server.log()}")
        answers = [clients.ask(server.port(), body) for body in clients.requests()]
        for answer in answers:
            if not answer.finished:
                raise Failed(f"one rank gives no answer: {answer}")
        server.signal(signal.SIGTERM)
        alone.wait_for_ends([0], time.monotonic() + 20)
    finally:
        alone.kill_all()
    return [answer.text for answer in answers]


def table(outcomes: list[Outcome]) -> str:
    """Cases and the worst time per layout, point and kind."""
    groups = collections.defaultdict(list)
    for outcome in outcomes:
        chosen = outcome.plan
        groups[(chosen.layout.name, chosen.point, chosen.kind)].append(outcome)
    rows = [f"{'layout':<14} {'point':<15} {'kind':<5} cases  failed  worst s"]
    order = {point: number for number, point in enumerate(plan.POINTS)}
    for (layout, point, kind), some in sorted(groups.items(), key=lambda item: (
        item[0][0], order[item[0][1]], item[0][2]
    )):
        failed = sum(bool(outcome.findings) for outcome in some)
        worst = max(outcome.seconds for outcome in some)
        rows.append(f"{layout:<14} {point:<15} {kind:<5} {len(some):5}  {failed:6}  {worst:7.2f}")
    return "\n".join(rows)


def show(outcome: Outcome, number: int, times: int) -> None:
    result = "FAILED" if outcome.findings else "ok"
    print(
        f"{number}/{times} seed {outcome.plan.seed}: {outcome.plan.title}: {result}, "
        f"{outcome.seconds:.2f} s, {outcome.answers_count} answers, {outcome.errors_count} errors",
        flush=True,
    )
    if outcome.findings:
        print("\n".join(f"  {finding}" for finding in outcome.findings))
        print(outcome.logs)
        print(f"again: ./x kills --seed {outcome.plan.seed} --times 1", flush=True)


def run(program: str, seeds: list[int]) -> None:
    group.adopt_orphans()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="tandem-kills-") as name:
        expected = answers_of_one_rank(program, Path(name))
        for number, seed in enumerate(seeds, 1):
            folder = Path(name) / str(number)
            folder.mkdir()
            outcomes.append(Case(program, plan.Plan.of_seed(seed), folder, expected).run())
            show(outcomes[-1], number, len(seeds))
    print("\n" + table(outcomes))
    failed = [outcome.plan.seed for outcome in outcomes if outcome.findings]
    if failed:
        raise Failed(f"{len(failed)} of {len(seeds)} cases failed, of seeds {failed}")


def seeds_of(first: int | None, times: int, points: list[str]) -> list[int]:
    """Every case has a seed of its own, so that it can be run again alone."""
    start = random.SystemRandom().randrange(10**6) if first is None else first
    fitting = (seed for seed in itertools.count(start) if plan.Plan.of_seed(seed).point in points)
    return list(itertools.islice(fitting, times))
