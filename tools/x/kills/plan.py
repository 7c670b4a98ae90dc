"""What one case does, drawn from its seed alone: layout, who is hit, where, how and when."""

import random
from dataclasses import dataclass

# Points of a process's life, in order.
BEFORE_JOINING = "before joining"
HANDSHAKE = "handshake"
LOADING = "loading"
WARM_UP = "warm-up"
IDLE = "idle"
LOAD = "under load"
POINTS = (BEFORE_JOINING, HANDSHAKE, LOADING, WARM_UP, IDLE, LOAD)

# What has been logged by the process that is hit, when each of these points begins.
MARKS = {HANDSHAKE: "comm_rank_meets", LOADING: "comm_rank_met ", WARM_UP: "rank_loaded"}

# How long after that moment the signal comes at most: about as long as the point lasts.
DELAYS_S = {
    BEFORE_JOINING: 0.08,
    HANDSHAKE: 0.05,
    LOADING: 0.15,
    WARM_UP: 0.05,
    IDLE: 0.4,
    LOAD: 0.6,
}

KILL = "kill"
STOP = "stop"

# Longer than the 3 seconds of silence that are logged; shorter than --dist-timeout.
STOPS_S = (4.0, 5.0)


@dataclass(frozen=True)
class Layout:
    tensor: int
    data: int
    processes: int
    flags: tuple[str, ...] = ()  # further ones of `tandem serve`

    @property
    def name(self) -> str:
        parts = [f"TP{self.tensor}"] * (self.tensor > 1) + [f"DP{self.data}"] * (self.data > 1)
        return f"{'x'.join(parts)} in {self.processes}{' with copies' * bool(self.flags)}"

    def ranks_of(self, process: int) -> range:
        count = self.tensor * self.data // self.processes
        return range(process * count, (process + 1) * count)

    def lost_with(self, process: int) -> set[int]:
        """Ranks that cannot go on without the process: its tensor-parallel groups as a whole."""
        groups = {rank // self.tensor for rank in self.ranks_of(process)}
        return {rank for rank in range(self.tensor * self.data) if rank // self.tensor in groups}

    def survives(self, process: int, victim: int) -> bool:
        """Whether the process has ranks that go on without the other one."""
        return not set(self.ranks_of(process)) <= self.lost_with(victim)

    def serves(self, process: int) -> bool:
        """Whether a rank of the process leads a tensor-parallel group."""
        return any(rank % self.tensor == 0 for rank in self.ranks_of(process))


LAYOUTS = (
    Layout(2, 1, 2),
    Layout(4, 1, 2),
    Layout(4, 1, 4),
    Layout(1, 2, 2),
    Layout(1, 4, 2),
    Layout(1, 4, 4),
    Layout(2, 2, 2),
    Layout(2, 2, 4),
    # Every expert of the model has a second rank.
    Layout(1, 4, 4, ("--num-redundant-experts", "16")),
)


@dataclass(frozen=True)
class Plan:
    seed: int
    layout: Layout
    victim: int  # the process that is hit
    held_back: int  # in the handshake: the process that starts only after that
    point: str
    kind: str
    delay_s: float
    stop_s: float
    start_delays_s: tuple[float, ...]  # of each process

    @classmethod
    def of_seed(cls, seed: int) -> "Plan":
        draw = random.Random(seed)
        layout = draw.choice(LAYOUTS)
        victim = draw.randrange(layout.processes)
        others = [process for process in range(layout.processes) if process != victim]
        point = draw.choice(POINTS)
        return cls(
            seed=seed,
            layout=layout,
            victim=victim,
            held_back=draw.choice(others),
            point=point,
            kind=draw.choice((KILL, KILL, STOP)),
            delay_s=draw.uniform(0, DELAYS_S[point]),
            stop_s=draw.uniform(*STOPS_S),
            start_delays_s=tuple(draw.uniform(0, 0.15) for _ in range(layout.processes)),
        )

    @property
    def title(self) -> str:
        hit = "/".join(str(rank) for rank in self.layout.ranks_of(self.victim))
        return f"{self.layout.name}, {self.kind} of rank {hit} {self.point}"
