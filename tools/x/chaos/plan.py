"""What one run does, drawn from its seed alone: the shape of the cluster and what happens when."""

import random
from dataclasses import dataclass

KILL = "kill"  # SIGKILL of a worker
STOP = "stop"  # SIGSTOP of a worker, SIGCONT later
END = "end"  # SIGTERM of a worker
CANCEL = "cancel"  # many clients leave at once
EVENTS = (KILL, KILL, KILL, STOP, END, CANCEL)

# Shorter than the two seconds of silence, around them, and far longer.
STOPS_S = ((0.2, 1.5), (1.5, 4.0), (10.0, 60.0))

SHAPES = (
    (1, 1, 1, 1),
    (1, 2, 1, 2),
    (2, 1, 2, 1),
    (2, 2, 2, 2),
    (2, 1, 1, 4),
)


@dataclass(frozen=True)
class Shape:
    prefill_workers: int
    prefill_tp: int
    decode_workers: int
    decode_dp: int

    @property
    def name(self) -> str:
        return (
            f"{self.prefill_workers} x prefill TP{self.prefill_tp}, "
            f"{self.decode_workers} x decode DP{self.decode_dp}"
        )

    @property
    def workers(self) -> list[str]:
        return [f"prefill-{i}" for i in range(self.prefill_workers)] + [
            f"decode-{i}" for i in range(self.decode_workers)
        ]

    @property
    def flags(self) -> list[str]:
        return [
            *("--prefill-workers", str(self.prefill_workers)),
            *("--prefill-tp", str(self.prefill_tp)),
            *("--decode-workers", str(self.decode_workers)),
            *("--decode-dp", str(self.decode_dp)),
        ]


@dataclass(frozen=True)
class Event:
    kind: str
    worker: str
    pause_s: float  # of load before it
    stop_s: float  # for which a stopped worker stays so

    @property
    def title(self) -> str:
        if self.kind == CANCEL:
            return "clients leave"
        return f"{self.kind} {self.worker}" + f" for {self.stop_s:.1f} s" * (self.kind == STOP)


def shape_of_seed(seed: int) -> Shape:
    return Shape(*random.Random(seed).choice(SHAPES))


def events_of_seed(seed: int, shape: Shape):
    """Endless: who runs them stops when time is over."""
    draw = random.Random(seed + 1)
    while True:
        yield Event(
            kind=draw.choice(EVENTS),
            worker=draw.choice(shape.workers),
            pause_s=draw.uniform(0.3, 3.0),
            stop_s=draw.uniform(*draw.choice(STOPS_S)),
        )
