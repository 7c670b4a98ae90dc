"""The processes of one case: started, watched through their logs, and looked for afterwards."""

import ctypes
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

from x.kills.plan import Layout
from x.shell import ROOT

MODEL = "models/tiny-moe"
MEET_TIMEOUT_S = 10
START_TIMEOUT_S = 90
SMALL = ("--max-model-len", "512", "--max-num-seqs", "8", "--max-num-batched-tokens", "128")

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on, what a process of ours leaves behind becomes a child of this one."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def children() -> set[int]:
    paths = Path("/proc/self/task").glob("*/children")
    return {int(word) for path in paths for word in path.read_text().split()}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Process:
    """One `tandem serve` with its log, which is its standard output and error together."""

    def __init__(self, command: list[str], log: Path):
        self.log_path = log
        with log.open("wb") as file:
            self.popen = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self.ended_at: float | None = None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def is_running(self) -> bool:
        if self.ended_at is None and self.popen.poll() is not None:
            self.ended_at = time.monotonic()
        return self.ended_at is None

    def is_up(self) -> bool:
        return re.search(r"serving at http|process \d+ of \d+ follows", self.log()) is not None

    def port(self) -> int:
        return int(re.search(r"serving at http://\S+:(\d+)", self.log())[1])


class Group:
    """All processes of a layout; `folder` takes their logs."""

    def __init__(self, program: str, layout: Layout, folder: Path):
        self.layout = layout
        self.processes: dict[int, Process] = {}
        self.memory: set[str] = set()  # what the ranks share, as /proc names it
        self._folder = folder
        self._command = [program, "serve", MODEL, "--port", "0", "--threads", "2", *SMALL]
        self._command += ["--tensor-parallel-size", str(layout.tensor)]
        self._command += ["--data-parallel-size", str(layout.data), *layout.flags]
        if layout.processes > 1:
            self._command += ["--nnodes", str(layout.processes)]
            self._command += ["--dist-init-addr", f"127.0.0.1:{free_port()}"]
            self._command += ["--dist-timeout", str(MEET_TIMEOUT_S)]

    def start(self, process: int) -> Process:
        own = ["--node-rank", str(process)] if self.layout.processes > 1 else []
        started = Process(self._command + own, self._folder / f"process-{process}.log")
        self.processes[process] = started
        return started

    def wait_until_up(self) -> str:
        """A finding, empty when all serve or follow in time."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for number, process in self.processes.items():
            while not process.is_up():
                if not process.is_running():
                    return f"process {number} ended while it started"
                if time.monotonic() > deadline:
                    return f"process {number} does not come up"
                time.sleep(0.01)
        return ""

    def note_memory(self) -> None:
        for process in self.processes.values():
            self.memory |= shared_mappings(process.popen.pid)

    def wait_for_ends(self, numbers: list[int], deadline: float) -> list[int]:
        """Those that still run at the deadline."""
        while time.monotonic() < deadline:
            running = [number for number in numbers if self.processes[number].is_running()]
            if not running:
                return []
            time.sleep(0.005)
        return running

    def leftovers(self) -> list[str]:
        """What outlives the processes, as findings."""
        orphans = children() - {p.popen.pid for p in self.processes.values() if p.is_running()}
        found = [f"process {pid} was left behind" for pid in orphans if is_alive(pid)]
        for folder in Path("/proc").glob("[0-9]*"):
            held = self.memory & shared_mappings(int(folder.name))
            if held:
                found.append(f"process {folder.name} still maps the ranks' memory {held}")
        return found + [f"{path} was left behind" for path in Path("/dev/shm").glob("*tandem*")]

    def kill_all(self) -> None:
        for process in self.processes.values():
            if process.is_running():
                process.signal(signal.SIGKILL)
                process.popen.wait()


def shared_mappings(pid: int) -> set[str]:
    """Device and inode of every anonymous shared file that a process maps."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except OSError:  # it ended, or is another user's
        return set()
    return {" ".join(line.split()[3:5]) for line in maps.splitlines() if "/memfd:" in line}


def is_alive(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False
