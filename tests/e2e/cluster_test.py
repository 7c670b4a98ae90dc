"""Goal: prefill and decode workers together answer as one process does, also when they die.

Method: `tandem serve` with worker processes in several shapes on one host; the same requests, 32 at
a time, to it and to one process; tokens and logprobs must be equal.
"""

import json
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from program import MODEL
from tandem_server import TandemServer

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


def workers(server: TandemServer) -> dict[str, int]:
    """Process ids of the workers that it has started, by name."""
    pids = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"--parent-pid={server.process.pid}" in words:
            name = next(word[7:] for word in words if word.startswith("--name="))
            pids[name] = int(path.parent.name)
    return pids


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
                self.assertEqual(len(workers(server)), shape[0] + shape[2])
                self.expect_same(server)
                self.assertEqual(server.stop(), 0, server.log())
                self.assertEqual(workers(server), {})

