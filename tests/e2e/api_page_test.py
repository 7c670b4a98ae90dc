"""Goal: docs/api.md says what the HTTP API takes and answers.

Method: fields, routes and error codes of the page against those in the server's source; numbers of
the page beyond and at their limits, sent; its examples run in their order against a server that was
just started, and their answers compared with those that the page shows, value by value.
"""

import json
import re
import shlex
import unittest
import urllib.error
import urllib.request

from program import ROOT
from tandem_server import TandemServer, stream_chunks

PAGE = (ROOT / "docs/api.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
SERVER = ROOT / "src/server"


def source(name: str) -> str:
    return (SERVER / name).read_text()


def parsed_fields(name: str) -> set[str]:
    """What a parser asks the body for."""
    pattern = r'fields\.(?:boolean|integer|number|string|find)\(\s*"(\w+)"'
    return set(re.findall(pattern, source(f"openai/{name}.cc")))


def rows(section: str) -> list[list[str]]:
    lines = re.findall(r"^\| (?!request|field|status)(.+) \|$", SECTIONS[section], re.M)
    return [re.split(r" \|(?: |$)", line) for line in lines]


def documented_fields(section: str) -> set[str]:
    return {name for row in rows(section) for name in re.findall(r"`(\w+)`", row[0])}


# Log probabilities differ between matrix paths, as their products are rounded in other orders.
LOGPROB_SHARE_MAX = 0.02


class Page(unittest.TestCase):
    def test_has_the_fields_that_the_parsers_read(self):
        shared = parsed_fields("generation_params")
        self.assertEqual(documented_fields("Shared fields"), shared)
        self.assertEqual(documented_fields("Chats"), parsed_fields("chat_request"))
        self.assertEqual(documented_fields("Completions"), parsed_fields("completion_request"))
        tokens = parsed_fields("tokenize_request") | {"model"}
        self.assertEqual(documented_fields("Tokens"), tokens)

    def test_has_the_fields_that_are_refused(self):
        refused = source("openai/unsupported.cc")
        listed = re.search(r"kUnsupported\[\] = \{(.*?)\};", refused, re.S)[1]
        names = set(re.findall(r'"(\w+)"', listed)) | parsed_fields("unsupported") - {"n"}
        self.assertEqual(documented_fields("How fields are read"), names)

    def test_has_the_routes(self):
        routes = re.findall(r'\{"(\w+)", "(/\S+)", "\w+"\}', source("api.cc"))
        table = PAGE[: PAGE.index("\n## ")]
        documented = re.findall(r"`(GET|POST) (\S+)`", table)
        self.assertGreater(len(routes), 5)
        self.assertEqual(sorted(documented), sorted(routes))

    def test_has_the_error_codes(self):
        files = [*SERVER.glob("*.cc"), *SERVER.glob("http/*.cc"), *SERVER.glob("openai/*.cc")]
        text = "".join(file.read_text() for file in files if not file.stem.endswith("_test"))
        made = set(re.findall(r'\.code = "(\w+)"', text))
        made |= set(re.findall(r'invalid_field\(\s*(?:[^,"]+|"\w*"),\s*"(\w+)"', text))
        made |= set(re.findall(r'kQueueFull = "(\w+)"', source("openai/api_error.h")))
        own = set(re.findall(r'return "(\w+)"', (ROOT / "src/base/result.cc").read_text()))
        documented = {code for row in rows("Errors") for code in re.findall(r"`(\w+)`", row[2])}
        self.assertGreater(len(made), 10)
        self.assertEqual(made - documented, set())
        self.assertEqual(documented - made - own, set())


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = TandemServer()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def status(self, path: str, body: dict) -> int:
        try:
            self.server.call(path, body)
            return 200
        except urllib.error.HTTPError as refused:
            refused.close()
            return refused.code

    def test_refuse_what_lies_beyond_the_limits_of_the_page(self):
        checked = 0
        for row in rows("Shared fields"):
            limits = re.fullmatch(r"(-?[\d.]+) to (-?[\d.]+)", row[2])
            if limits is None or row[1] not in ("number", "integer"):
                continue
            name = re.search(r"`(\w+)`", row[0])[1]
            low, high = (float(limit) for limit in limits.groups())
            step = 1 if row[1] == "integer" else 0.0001
            body = {"prompt": "a", "max_tokens": 1, "temperature": 0}
            cases = [(low, 200), (low - step, 400), (high + step, 400)]
            if name != "max_tokens":  # it would take the whole context
                cases.append((high, 200))
            for value, expected in cases:
                with self.subTest(field=name, value=value):
                    self.assertEqual(self.status("/v1/completions", body | {name: value}), expected)
            checked += 1
        self.assertGreater(checked, 6)


class Examples(unittest.TestCase):
    def setUp(self):
        self.server = TandemServer()  # a fresh one: its prefix cache is empty
        self.addCleanup(self.server.stop)

    def send(self, command: str) -> str:
        """Does what a curl line of the page does."""
        words = shlex.split(command)
        self.assertEqual(words[:2], ["curl", "-s"])
        address = words[2].replace("127.0.0.1:8000", f"{self.server.host}:{self.server.port}")
        data = words[words.index("-d") + 1].encode() if "-d" in words else None
        try:
            with urllib.request.urlopen(address, data, timeout=60) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.read().decode()

    def expect_shown(self, actual, shown, where="answer"):
        """`actual` is what the page shows, but for times, what it cuts with `...`, and rounding."""
        if where.endswith(".created"):
            self.assertIsInstance(actual, int, where)
        elif isinstance(shown, dict):
            self.assertEqual(set(actual), set(shown), where)
            for key, inner in shown.items():
                self.expect_shown(actual[key], inner, f"{where}.{key}")
        elif isinstance(shown, list):
            self.assertEqual(len(actual), len(shown), where)
            for i, inner in enumerate(shown):
                self.expect_shown(actual[i], inner, f"{where}[{i}]")
        elif isinstance(shown, float):
            self.assertAlmostEqual(actual, shown, None, where, abs(shown) * LOGPROB_SHARE_MAX)
        elif isinstance(shown, str) and shown.endswith("..."):
            self.assertRegex(actual, "^" + re.escape(shown[:-3]) + ".", where)
        else:
            self.assertEqual(actual, shown, where)

    def expect_stream(self, chunks):
        """What the page says of the chunks of a chat."""
        self.assertEqual({chunk["object"] for chunk in chunks}, {"chat.completion.chunk"})
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
        self.assertEqual(deltas[0], {"role": "assistant", "content": ""})
        self.assertEqual({tuple(delta) for delta in deltas[1:-1]}, {("content",)})
        self.assertEqual(deltas[-1], {})
        self.assertIn(chunks[-2]["choices"][0]["finish_reason"], ("stop", "length"))
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertGreater(chunks[-1]["usage"]["completion_tokens"], 0)
        self.assertEqual({chunk["usage"] for chunk in chunks[:-1]}, {None})

    def test_answer_what_the_page_shows(self):
        examples = re.findall(r"^```\n(curl .*?)```\n\n(?:```json\n(.*?)```)?", PAGE, re.M | re.S)
        self.assertGreater(len(examples), 5)
        for command, shown in examples:
            with self.subTest(command):
                answer = self.send(command)
                if '"stream": true' in command:
                    self.expect_stream(stream_chunks(answer))
                else:
                    self.expect_shown(json.loads(answer), json.loads(shown))

    def test_asked_again_take_tokens_from_the_prefix_cache(self):
        command = re.search(r"^```\n(curl .*?)```", SECTIONS["Chats"], re.M | re.S)[1]
        shown = int(re.search(r"here (\d+) when asked again", SECTIONS["Chats"])[1])
        cached = []
        for _ in range(2):
            usage = json.loads(self.send(command))["usage"]
            cached.append(usage["prompt_tokens_details"]["cached_tokens"])
        self.assertEqual(cached, [0, shown])

    def test_answers_in_a_line_of_text_are_given_too(self):
        version = re.search(r"`GET /version` \| `(.+?)`", PAGE)[1]
        well = re.search(r"200 with `(.+?)`", SECTIONS["Probes"])[1]
        shown = {"/version": version, "/live": well, "/health": well, "/ready": well}
        for path, answer in shown.items():
            self.assertEqual(json.loads(self.server.call(path)), json.loads(answer), path)


if __name__ == "__main__":
    unittest.main()
