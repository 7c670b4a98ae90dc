"""HTTP clients of a group: each asks one thing after another and holds the answers against those of
one rank."""

import http.client
import json
import threading
import time
from dataclasses import dataclass, field

TIMEOUT_S = 60

PROMPTS = (
    "What is 12 + 30?",
    "Tell me a story about a dog and a very old boat.",
    "Hi",
    "Once upon a time there was a king who counted all the stones of his land. " * 4,
)


def requests() -> list[dict]:
    """Greedy and sampled, short and long, in one piece and streamed."""
    made = []
    for number, prompt in enumerate(PROMPTS):
        body = {"model": "tiny-moe", "prompt": prompt, "max_tokens": 30 + 40 * number}
        body |= {"temperature": 0.9 * (number % 2), "seed": number, "ignore_eos": True}
        made += [body, body | {"stream": True}]
    return made


@dataclass
class Answer:
    """What a client was told: a text, or why there is none."""

    text: str = ""
    finished: bool = False  # with a finish reason
    error: str = ""  # the server's own words
    cut: str = ""  # how the connection failed instead


def read_stream(response: http.client.HTTPResponse, answer: Answer) -> None:
    for line in response:
        line = line.strip().decode()
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        event = json.loads(line[6:])
        if "error" in event:
            answer.error += event["error"]["message"]
            continue
        for choice in event["choices"]:
            answer.text += choice["text"]
            answer.finished |= choice["finish_reason"] is not None
    if not answer.finished and not answer.error:
        answer.cut = "the stream ended without a finish reason"


def ask(port: int, body: dict) -> Answer:
    answer = Answer()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        if response.status != 200:
            told = json.loads(response.read())["error"]
            answer.error = f"{response.status}: {told['message']}"
        elif body.get("stream"):
            read_stream(response, answer)
        else:
            choice = json.loads(response.read())["choices"][0]
            answer.text, answer.finished = choice["text"], choice["finish_reason"] is not None
    except TimeoutError:
        answer.cut = "no answer came"
    except (OSError, http.client.HTTPException, ValueError, KeyError) as failure:
        answer.cut = f"{type(failure).__name__}: {failure}"
    finally:
        connection.close()
    return answer


def health(port: int) -> dict:
    """What /health says; nothing when it does not answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()


def finding(body: dict, answer: Answer, expected: str, may_fail: bool, may_be_cut: bool) -> str:
    """What is wrong with an answer; empty when nothing is."""
    asked = f"{'streamed ' * bool(body.get('stream'))}request {body['prompt'][:20]!r}"
    if answer.finished and not answer.error and not answer.cut:
        return "" if answer.text == expected else f"{asked}: a wrong answer with status 200"
    if not expected.startswith(answer.text):
        return f"{asked}: wrong tokens before {answer.error or answer.cut}"
    if answer.cut and not may_be_cut:
        return f"{asked}: no answer and no error, but {answer.cut}"
    if not may_fail:
        return f"{asked}: {answer.error or answer.cut}"
    return ""


@dataclass
class Clients:
    """Threads that ask servers until stop(). `hit()` is the moment from which errors are allowed;
    what was asked before still gets an answer or the server's own error, unless `victim_port`,
    the port of the process that is killed, was asked."""

    ports: list[int]
    expected: list[str]
    victim_port: int | None = None
    findings: list[str] = field(default_factory=list)
    answers_count: int = 0
    errors: list[str] = field(default_factory=list)
    _hit_at: float = float("inf")

    def start(self) -> None:
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(port, client))
            for port in self.ports
            for client in range(3)
        ]
        for thread in self._threads:
            thread.start()

    def hit(self) -> None:
        self._hit_at = time.monotonic()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, port: int, client: int) -> None:
        bodies = requests()
        number = client
        while not self._stopping.is_set():
            index = number % len(bodies)
            asked_at = time.monotonic()
            answer = ask(port, bodies[index])
            lost = self._hit_at < float("inf")
            # Who asks a server that is about to end may find the door shut.
            may_be_cut = lost and (port == self.victim_port or asked_at > self._hit_at)
            wrong = finding(bodies[index], answer, self.expected[index], lost, may_be_cut)
            if wrong:
                self.findings.append(wrong)
            if answer.error:
                self.errors.append(answer.error)
            if answer.error or answer.cut:
                return
            self.answers_count += 1
            number += 3
