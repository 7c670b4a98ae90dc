"""Goal: prefill and decode workers together answer as one process does, also when they die.

Method: `tandem serve` with worker processes in several shapes on one host; the same seeded requests,
32 at a time, to it and to one process; token ids and logprobs must be equal. Then workers are
killed, stopped and continued while streams run, requests are cancelled, and what the server says of
its workers is read.
"""

import json
import os
import signal
import time
import unittest
import urllib.error
from concurrent.futures import ThreadPoolExecutor

from program import MODEL, run
from tandem_server import TandemServer, stream_chunks

AT_ONCE = 32


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


def cluster(prefill: int, prefill_tp: int, decode: int, decode_dp: int, *more: str) -> TandemServer:
    return TandemServer(
        *("--prefill-workers", str(prefill), "--prefill-tp", str(prefill_tp)),
        *("--decode-workers", str(decode), "--decode-dp", str(decode_dp), *more),
    )


def children(server: TandemServer) -> dict[str, int]:
    """Process ids of the workers, by name."""
    pids = {}
    for entry in os.listdir("/proc"):
        try:
            words = open(f"/proc/{entry}/cmdline").read().split("\0")
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
            continue
        if f"--parent-pid={server.process.pid}" in words:
            pids[next(word[7:] for word in words if word.startswith("--name="))] = int(entry)
    return pids


def wait_until(condition, seconds: float = 60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.05)


class Cluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prompts = validation_chats(48)
        one = TandemServer()
        cls.expected = answers(one, cls.prompts)
        assert one.stop() == 0

    def expect_same(self, server: TandemServer):
        got = answers(server, self.prompts)
        for prompt, expected, one in zip(self.prompts, self.expected, got):
            self.assertEqual(one, expected, prompt)

    def test_answers_are_those_of_one_process(self):
        for shape in ((1, 4, 1, 4), (2, 1, 2, 2), (1, 2, 1, 1)):
            with self.subTest(shape=shape):
                server = cluster(*shape)
                self.expect_same(server)
                self.assertEqual(server.stop(), 0, server.log())
                self.assertEqual(children(server), {})

