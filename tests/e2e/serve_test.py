"""Goal: the program a user starts answers over HTTP and ends cleanly.

Method: `tandem serve models/tiny-moe` on a free port; a known sum, the same answer streamed, a bad
request, then SIGTERM.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from program import MODEL, TANDEM
from tandem_server import TandemServer

CHAT = {
    "model": "tiny-moe",
    "messages": [{"role": "user", "content": "What is 12 + 30?"}],
    "temperature": 0,
    "chat_template_kwargs": {"enable_thinking": False},
}


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = subprocess.Popen(
            [TANDEM, "serve", MODEL, "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for line in cls.server.stdout:
            if match := re.search(r"serving at (http://\S+)", line):
                cls.address = match[1]
                return
        raise AssertionError("the server ended before it printed its address")

    @classmethod
    def tearDownClass(cls):
        cls.server.send_signal(signal.SIGTERM)
        code = cls.server.wait(timeout=30)
        cls.server.stdout.close()
        if code != 0:
            raise AssertionError(f"the server ended with {code}")

    def post(self, body):
        request = urllib.request.Request(
            self.address + "/v1/chat/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.read().decode()

    def test_answers_a_sum(self):
        choice = json.loads(self.post(CHAT))["choices"][0]
        self.assertEqual(choice["message"]["content"], "12 + 30 = 42")
        self.assertEqual(choice["finish_reason"], "stop")

    def test_streams_the_same_answer(self):
        events = [
            line.removeprefix("data: ")
            for line in self.post(CHAT | {"stream": True}).splitlines()
            if line.startswith("data: ")
        ]
        self.assertEqual(events.pop(), "[DONE]")
        deltas = [json.loads(event)["choices"][0]["delta"] for event in events]
        self.assertEqual("".join(d.get("content") or "" for d in deltas), "12 + 30 = 42")
        self.assertGreater(len(deltas), 5)

    def test_refuses_a_wrong_type_and_lives(self):
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.post(CHAT | {"temperature": "hot"})
        self.assertEqual(refused.exception.code, 400)
        error = json.loads(refused.exception.read())["error"]
        self.assertEqual(error["param"], "temperature")
        refused.exception.close()
        self.test_answers_a_sum()


class Output(unittest.TestCase):
    def test_the_start_says_what_bounds_it_and_the_log_who_asked(self):
        server = TandemServer("--max-num-seqs", "3", "--max-model-len", "256", "--dtype", "f32")
        for line in (r"max-num-seqs +3", r"max-model-len +256", r"dtype +f32", r"layout +1 rank"):
            self.assertRegex(server.report, rf"(?m)^{line}$")
        server.call("/health")
        server.call("/v1/chat/completions", CHAT)
        self.assertEqual(server.stop(), 0)
        line = 'path="/v1/chat/completions" status=200 prompt_tokens=22 completion_tokens=11 '
        self.assertIn(f"http_request method=POST {line}duration_ms=", server.log())
        self.assertNotIn("/health", server.log())
        self.assertNotIn("12 + 30", server.log())

    def test_the_log_can_be_without_requests_or_with_probes(self):
        silent = TandemServer("--disable-log-requests")
        silent.call("/v1/models")
        silent.stop()
        self.assertNotIn("http_request", silent.log())
        chatty = TandemServer("--log-probes")
        chatty.call("/health")
        chatty.stop()
        self.assertIn('path="/health" status=200', chatty.log())


class Template(unittest.TestCase):
    """A template of the user's own, which Jinja renders in a process of its own."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        for file in MODEL.iterdir():
            (Path(cls.folder.name) / file.name).symlink_to(file)
        template = Path(cls.folder.name) / "chat_template.jinja"
        template.unlink(missing_ok=True)
        template.write_text("{{ (messages[0].content * 400000000) | length }}")
        cls.server = TandemServer(model=cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def test_that_needs_too_much_memory_is_a_fault_of_the_request(self):
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.server.call("/v1/chat/completions", CHAT | {"model": Path(self.folder.name).name})
        self.assertEqual(refused.exception.code, 400)
        self.assertIsNone(refused.exception.headers["Retry-After"])
        error = json.loads(refused.exception.read())["error"]
        self.assertEqual((error["type"], error["param"]), ("invalid_request_error", "messages"))
        self.assertRegex(error["message"], "more than 1024 MiB of memory.*send less text")
        refused.exception.close()


class Threads(unittest.TestCase):
    def setUp(self):
        cores = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, {min(cores)})

    def test_are_as_many_as_the_cores_that_it_may_use(self):
        server = TandemServer()
        server.stop()
        self.assertRegex(server.report, r"(?m)^threads +1$")

    def test_are_not_more_whatever_is_asked_for(self):
        begin = time.monotonic()
        server = TandemServer("--threads", "1000")
        server.stop()
        self.assertLess(time.monotonic() - begin, 10)
        self.assertRegex(server.report, r"(?m)^threads +1$")
        self.assertEqual(server.log().count("threads_lowered wanted=1000 used=1 "), 1)


class Name(unittest.TestCase):
    def test_a_slash_behind_the_folder_does_not_empty_the_name(self):
        server = TandemServer(model=f"{MODEL}/")
        models = json.loads(server.call("/v1/models"))["data"]
        self.assertEqual(server.stop(), 0)
        self.assertEqual([model["id"] for model in models], [MODEL.name])


if __name__ == "__main__":
    unittest.main()
