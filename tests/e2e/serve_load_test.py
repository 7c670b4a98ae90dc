"""Goal: the real server bears its clients: idle, silent by the thousand, slow, leaving, and its
own end in the middle of answers.

Method: `tandem serve models/tiny-moe`, plain sockets, and what /proc and /metrics say. What a fake
engine can show is in src/server; here it is the whole program. The bounds on time are far above
what a quiet machine needs (noted at each), so that a busy one passes and a hang does not.
"""

import random
import resource
import select
import socket
import time
import unittest

from tandem_server import TandemServer, stream_chunks

CHAT = {
    "messages": [{"role": "user", "content": "What is 12 + 30?"}],
    "temperature": 0,
    "chat_template_kwargs": {"enable_thinking": False},
}
SUM = "12 + 30 = 42"
ANSWER_SECONDS_MAX = 20  # takes 0.1 s on a quiet machine
IDLE_CONNECTIONS = 10_000
IDLE_CONNECTIONS_MIN = 1_000
DESCRIPTORS_FOR_OTHERS = 200
WRITE_TIMEOUT_SECONDS = 5
HEAD_BYTES_MAX = 4096
TOKENS = 400


def long_completion(tokens: int, **more) -> dict:
    body = {"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True}
    return body | {"temperature": 0, "stream": True} | more


def open_files_allowed() -> int:
    """Raises this process's limit as far as it goes; the server raises its own, which is equal."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def read_to_end(client: socket.socket) -> str:
    parts = []
    while part := client.recv(1 << 16):
        parts.append(part)
    return b"".join(parts).decode()


class ServeUnderLoad(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = TandemServer(
            "--max-num-seqs", "64", "--write-timeout", str(WRITE_TIMEOUT_SECONDS)
        )

    @classmethod
    def tearDownClass(cls):
        if (code := cls.server.stop()) != 0:
            raise AssertionError(f"the server ended with {code}")

    def await_metric(self, name: str, wanted: float, labels: str = "", seconds: float = 60):
        end = time.monotonic() + seconds
        while (value := self.server.metric(name, labels)) != wanted:
            self.assertLess(time.monotonic(), end, f"{name} is {value}, not {wanted}")
            time.sleep(0.05)

    def assert_answers(self, seconds_max: float = ANSWER_SECONDS_MAX):
        start = time.monotonic()
        answer = self.server.call("/v1/chat/completions", CHAT, timeout=60)
        self.assertIn(SUM, answer)
        self.assertLess(time.monotonic() - start, seconds_max)

    def assert_nothing_runs(self):
        self.await_metric("num_requests_running", 0)
        self.await_metric("num_requests_waiting", 0)
        self.await_metric("kv_cache_usage_perc", 0)

    def test_idle_uses_no_cpu(self):
        """One tick in 3 s is the least that /proc can show; one thread that spins uses 300, and
        one that polls every 10 ms wakes up 300 times. Wake-ups show more than ticks: none may be
        left, but for the end of our last connection, whose timer may run once more."""
        self.assert_answers()
        time.sleep(1.5)
        ticks, wakeups = self.server.cpu_ticks(), self.server.wakeups()
        time.sleep(3)
        ticks, wakeups = self.server.cpu_ticks() - ticks, self.server.wakeups() - wakeups
        print(f"idle for 3 s: {ticks} ticks, {wakeups} wake-ups ", end="", flush=True)
        self.assertLessEqual(ticks, 1)
        self.assertLessEqual(wakeups, 2)

    def test_silent_connections_cost_little_and_hinder_nobody(self):
        allowed = open_files_allowed() - DESCRIPTORS_FOR_OTHERS
        count = min(IDLE_CONNECTIONS, allowed)
        if count < IDLE_CONNECTIONS:
            print(f"\nonly {count} connections: the hard limit of open files ends there ", end="")
        self.assertGreaterEqual(count, IDLE_CONNECTIONS_MIN, "raise the limit: ulimit -Hn 10200")
        self.assert_answers()
        peaks = []
        before = self.server.resident_bytes()
        for _ in range(2):
            silent = [self.server.connect() for _ in range(count)]
            try:
                self.await_metric("http_connections_open", count + 1)
                peaks.append(self.server.resident_bytes())
                self.assert_answers()
            finally:
                for client in silent:
                    client.close()
            self.await_metric("http_connections_open", 1)
        growth = (peaks[0] - before) / count
        print(f"{count} connections, {growth:.0f} bytes each ", end="", flush=True)
        # Measured 2.9 KB: the object and the frames of its coroutines, no buffers.
        self.assertLess(growth, 4096)
        self.assertLess((peaks[1] - peaks[0]) / count, 256, "memory of closed ones comes back")

    def slow_reader(self, body: dict) -> socket.socket:
        """A client whose kernel takes a few KiB only. Small segments keep the server's side small
        too: over loopback it would take megabytes otherwise."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        client.settimeout(60)
        client.connect((self.server.host, self.server.port))
        return self.server.post_raw("/v1/completions", body, client)

    def test_slow_readers_lose_nothing_and_dead_ones_are_cut(self):
        """50 streams of 260 KB, where the kernel holds 150: 45 read a little now and then, and all
        of it in the end; 5 never read. Others are served all the time."""
        body = long_completion(TOKENS, logprobs=20, stream_options={"include_usage": True})
        with self.server.post_raw("/v1/completions", body) as client:
            whole = read_to_end(client)
        self.assertGreater(len(whole), 250_000, "the streams were meant not to fit the kernel")
        right = stream_chunks(whole)
        right_text = "".join(c["choices"][0]["text"] for c in right if c["choices"])
        self.assertEqual(right[-1]["usage"]["completion_tokens"], TOKENS)
        cut_before = self.server.metric("http_slow_readers_total")

        readers = [self.slow_reader(body) for _ in range(50)]
        for client in readers:
            self.addCleanup(client.close)
        dead, moving = readers[:5], readers[5:]
        received = {client: b"" for client in moving}
        self.assert_answers()
        end = time.monotonic() + 60
        while self.server.metric("http_slow_readers_total") < cut_before + len(dead):
            self.assertLess(time.monotonic(), end, "readers that read nothing were not cut")
            for client in select.select(moving, [], [], 0)[0]:
                received[client] += client.recv(1500)
            time.sleep(0.2)
        self.assert_answers()
        self.assertLess(max(map(len, received.values())), 200_000, "they were meant to be slow")
        reading = set(moving)
        while reading:  # all at once, or the last would stall while we read the first
            for client in select.select(reading, [], [], 60)[0]:
                received[client] += (part := client.recv(1 << 16))
                if not part:
                    reading.remove(client)
        for whole in received.values():
            chunks = stream_chunks(whole.decode())
            text = "".join(c["choices"][0]["text"] for c in chunks if c["choices"])
            self.assertEqual(text, right_text)
            self.assertEqual(chunks[-1]["usage"]["completion_tokens"], TOKENS)
        self.assertEqual(self.server.metric("http_slow_readers_total"), cut_before + len(dead))
        self.assert_nothing_runs()

    def test_leaving_cancels_and_ending_does_not(self):
        """In waves: 300 clients leave at random moments, queued, in their prompt, in their answer,
        streaming or not; after each the server answers and holds nothing of them."""
        abort = 'finished_reason="abort"'
        draw = random.Random(5)
        for _ in range(4):
            clients = []
            for i in range(300):
                body = long_completion(2000, stream=i % 3 != 0)
                clients.append(self.server.post_raw("/v1/completions", body))
                if draw.random() < 0.3:
                    clients.pop(draw.randrange(len(clients))).close()
            draw.shuffle(clients)
            for client in clients:
                client.close()
            self.assert_answers()
            self.assert_nothing_runs()
        aborted = self.server.metric("request_success_total", abort)
        self.assertGreater(aborted, 500)
        self.assert_answers()
        self.assertEqual(self.server.metric("request_success_total", abort), aborted)


class ServeDrains(unittest.TestCase):
    def test_sigterm_finishes_what_runs_and_what_waits(self):
        server = TandemServer("--max-num-seqs", "3")
        self.addCleanup(server.stop)
        streams = [
            server.post_raw("/v1/completions", long_completion(200, seed=i)) for i in range(5)
        ]
        heads = [client.recv(HEAD_BYTES_MAX) for client in streams[:3]]  # three run, two wait
        self.assertTrue(all(head.startswith(b"HTTP/1.") for head in heads))
        server.process.terminate()
        end = time.monotonic() + 10
        refused = False
        while not refused and time.monotonic() < end:
            try:
                server.connect(timeout=5).close()
                time.sleep(0.01)
            except ConnectionRefusedError:
                refused = True
        self.assertTrue(refused, "it still accepts")
        heads += [b"", b""]
        for client, head in zip(streams, heads, strict=True):
            chunks = stream_chunks(head.decode() + read_to_end(client))
            self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "length")
            client.close()
        self.assertEqual(server.process.wait(timeout=60), 0)


if __name__ == "__main__":
    unittest.main()
