"""Goal: prefill and decode workers together answer as one process does, also when they die.

Method: `tandem serve` with worker processes in several shapes on one host; the same requests, 32 at
a time, to it and to one process; texts and logprobs must be equal. Then workers are killed, stopped
and told to end while streams run, and clients leave; every request must end once, with the text of
one process or a part of it and an error that names the worker, and all pages must come back.
"""

import json
import random
import signal
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from cluster_server import (
    Cluster,
    Streams,
    Told,
    answers,
    body_of,
    validation_chats,
    wait_until,
)
from tandem_server import TandemServer

SHAPES = ((1, 4, 1, 4), (2, 1, 2, 2))
LONG_TOKENS = 150
CANCELS = 200


def stream_bodies(count: int) -> list[dict]:
    """Of different lengths, greedy and sampled, computed anew whatever is cached."""
    chats = validation_chats(count)
    return [
        body_of(prompt, LONG_TOKENS)
        | {"ignore_eos": True, "cache_salt": str(random.random())}
        | {"temperature": number % 2, "seed": number}
        for number, prompt in enumerate(chats)
    ]


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prompts = validation_chats(48)
        words = "boat king stone river dog tower night bread".split()
        cls.long = [" ".join(words[(i * k) % 7] for i in range(330)) for k in range(1, 33)]
        one = TandemServer()
        cls.expected = answers(one, cls.prompts)
        cls.expected_long = answers(one, cls.long)
        assert one.stop() == 0

    def test_answers_are_those_of_one_process(self):
        for shape in SHAPES:
            with self.subTest(shape=shape):
                server = Cluster(shape)
                for prompt, one, all in zip(
                    self.prompts, self.expected, answers(server, self.prompts)
                ):
                    self.assertEqual(all, one, prompt)
                self.assertEqual(server.stop(), 0, server.log())
                self.assertEqual(server.workers(), {})

    def test_long_prompts_in_many_chunks_and_small_pages(self):
        server = Cluster((1, 2, 1, 1), "--max-num-batched-tokens", "64", "--block-size", "8")
        for one, all in zip(self.expected_long, answers(server, self.long)):
            self.assertEqual(all, one)
        source = 'source="external_kv_transfer"'
        self.assertGreater(server.metric("prompt_tokens_by_source_total", source), 32 * 256)
        server.wait_until_at_rest()
        self.assertEqual(server.stop(), 0, server.log())

    def test_an_answer_ends_at_the_models_length_whatever_was_asked_for(self):
        short = ("--max-model-len", "64", "--kv-cache-tokens", "128")
        body = body_of(self.prompts[0], 100_000) | {"ignore_eos": True}
        told = []
        for server in (TandemServer(*short), Cluster((1, 1, 1, 1), *short)):
            told.append(json.loads(server.call("/v1/completions", body)))
            self.assertEqual(server.stop(), 0, server.log())
        one, all = told
        self.assertEqual(all["choices"], one["choices"])
        self.assertEqual(all["choices"][0]["finish_reason"], "length")
        self.assertEqual(all["usage"]["total_tokens"], 64)


class Losses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bodies = stream_bodies(32)
        one = TandemServer()
        told = Streams(one, cls.bodies).result()
        assert all(one.is_finished for one in told)
        cls.expected = [one.text for one in told]
        assert one.stop() == 0
        cls.server = Cluster((1, 2, 2, 1))

    @classmethod
    def tearDownClass(cls):
        if (code := cls.server.stop()) != 0:
            raise AssertionError(f"the server ended with {code}: {cls.server.log()}")

    def streams(self) -> Streams:
        return Streams(
            self.server, [body | {"cache_salt": str(random.random())} for body in self.bodies]
        )

    def expect_right(self, told: list[Told], error: str | None = None) -> int:
        """Every text is whole; or, where `error` is given, begins right and ends with that."""
        for one, expected in zip(told, self.expected):
            if error is not None and one.error:
                self.assertRegex(one.error, error)
                self.assertFalse(one.is_finished)
                self.assertTrue(expected.startswith(one.text), one)
            else:
                self.assertEqual((one.text, one.is_finished, one.error), (expected, True, ""))
        return sum(bool(one.error) for one in told)

    def expect_all_well_again(self):
        self.server.wait_until_well()
        self.expect_right(self.streams().result())
        self.server.wait_until_at_rest()

    def test_a_killed_prefill_worker_costs_no_answer(self):
        """Decode workers compute by themselves what it owes."""
        streams = self.streams()
        streams.wait_until_begun(2)
        wait_until(lambda: self.server.metric("num_requests_awaiting_kv") > 0, "a hand-off")
        self.server.signal("prefill-0", signal.SIGKILL)
        self.assertEqual(self.server.wait_until_named("prefill-0"), 503)
        self.expect_right(streams.result())
        self.expect_all_well_again()

    def test_a_killed_decode_worker_takes_only_its_own_streams_along(self):
        streams = self.streams()
        streams.wait_until_begun(12)
        self.server.signal("decode-0", signal.SIGKILL)
        self.assertEqual(self.server.wait_until_named("decode-0"), 200)
        errors = self.expect_right(streams.result(), "worker decode-0 lost the request after")
        self.assertLess(errors, len(self.bodies))
        self.expect_all_well_again()

    def test_a_stopped_prefill_worker_goes_on_when_it_is_continued(self):
        streams = self.streams()
        streams.wait_until_begun(4)
        self.server.signal("prefill-0", signal.SIGSTOP)
        self.addCleanup(self.server.signal, "prefill-0", signal.SIGCONT)
        self.server.wait_until_named("prefill-0")
        self.expect_right(streams.result())  # without it
        self.server.signal("prefill-0", signal.SIGCONT)
        self.expect_all_well_again()

    def test_clients_that_leave_leak_nothing(self):
        draw = random.Random(3)

        def leave(_):
            body = draw.choice(self.bodies) | {"cache_salt": str(draw.random()), "stream": True}
            client = self.server.post_raw("/v1/completions", body)
            time.sleep(draw.uniform(0, 0.4))  # a random point of its life
            client.close()

        with ThreadPoolExecutor(40) as clients:
            list(clients.map(leave, range(CANCELS)))
        self.server.wait_until_at_rest()
        self.expect_all_well_again()

    def test_a_worker_that_is_told_to_end_finishes_what_it_has(self):
        for worker in ("decode-1", "prefill-0"):
            with self.subTest(worker=worker):
                streams = self.streams()
                streams.wait_until_begun(8)
                self.server.signal(worker, signal.SIGTERM)
                self.server.wait_until_named(worker)
                self.expect_right(streams.result())
                self.expect_all_well_again()

    def test_idle_costs_little(self):
        self.expect_all_well_again()
        before = self.server.cpu_ticks()
        time.sleep(3)  # the time that is measured
        ticks = self.server.cpu_ticks() - before
        print(f"4 idle processes for 3 s: {ticks} ticks ", end="", flush=True)
        self.assertLess(ticks, 60)  # one thread that spins uses 300


class End(unittest.TestCase):
    def test_sigterm_finishes_what_runs(self):
        bodies = stream_bodies(16)
        one = TandemServer()
        expected = Streams(one, bodies).result()
        self.assertEqual(one.stop(), 0)
        server = Cluster((1, 1, 1, 2))
        streams = Streams(server, bodies)
        streams.wait_until_begun(4)
        self.assertEqual(server.stop(), 0, server.log())
        self.assertEqual(streams.result(), expected)
        self.assertEqual(server.workers(), {})


if __name__ == "__main__":
    unittest.main()
