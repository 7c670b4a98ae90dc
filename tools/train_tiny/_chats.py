"""Chats: a story on request, facts to recall from a long prompt, a tool call, or one of the shorter
questions, rendered with the chat template of Qwen3 with thinking on or off."""

import json
import pathlib
import random

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from _arithmetic import arithmetic
from _exchange import Exchange, exchange, message
from _questions import simple
from _stories import story
from _tool_calls import tool_call
from _words import ANIMALS, CAPITALS, COLORS, NAMES, PLACES, THINGS

SYSTEM_PROMPTS = ["You are a helpful assistant.", "You are Tandem's demo model.",
                  "Answer briefly.", "You are a friendly teacher."]
EMPTY_THOUGHT = "<think>\n\n</think>\n\n"
FACTS = {
    "code": ("The secret code of {} is {}.", "What is the secret code of {}?"),
    "animal": ("The favorite animal of {} is the {}.", "What is the favorite animal of {}?"),
    "color": ("The favorite color of {} is {}.", "What is the favorite color of {}?"),
    "town": ("{} lives in {}.", "Where does {} live?"),
}
VALUES = {"animal": ANIMALS, "color": COLORS, "town": list(CAPITALS.values())}


def story_chat(draw: random.Random) -> Exchange:
    name, animal = draw.choice(NAMES), draw.choice(ANIMALS)
    thing, place = draw.choice(THINGS), draw.choice(PLACES)
    question, given = draw.choice([
        ("Tell me a story.", {}),
        ("Write a short story.", {}),
        (f"Tell me a story about {name}.", {"name": name}),
        (f"Tell me a story about a {animal}.", {"animal": animal}),
        (f"Write a short story about {name} and a {thing}.", {"name": name, "thing": thing}),
        (f"Tell me a story about {name} in the {place}.", {"name": name, "place": place}),
    ])
    about = f" about {', '.join(given.values())}" if given else ""
    return exchange(question, story(draw, **given), f"I will tell a short story{about}.")


def distraction(draw: random.Random, filler: list[str]) -> list[str]:
    """Texts between which the facts hide: stories, prose, or one sentence again and again."""
    count, kind = draw.choice([0, 0, 1, 1, 2, 3, 5, 9, 14]), draw.random()
    if kind < 0.4:
        return [story(draw) for _ in range(count)]
    if kind < 0.8:
        return [draw.choice(filler)[: draw.randint(60, 500)] for _ in range(count)]
    return [draw.choice(filler)[: draw.randint(20, 120)]] * draw.randint(1, 4 * count + 1)


def recall(draw: random.Random, filler: list[str]) -> Exchange:
    facts = []
    for name in draw.sample(NAMES, draw.randint(1, 6)):
        kind = draw.choice(list(FACTS))
        value = str(draw.randint(1000, 9999)) if kind == "code" else draw.choice(VALUES[kind])
        facts.append((FACTS[kind][0].format(name, value), FACTS[kind][1].format(name)))
    body = [statement for statement, _ in facts] + distraction(draw, filler)
    draw.shuffle(body)
    answer, question = draw.choice(facts)
    thought = f"The text says: {answer}"
    if draw.random() < 0.5:
        return exchange(" ".join(body) + " " + question, answer, thought)
    asked = [message("user", "Remember this. " + " ".join(body)),
             message("assistant", "I will remember it."), message("user", question)]
    return Exchange(asked, message("assistant", answer), thought)


def conversation(draw: random.Random, filler: list[str]) -> Exchange:
    """An exchange, maybe after a system prompt; a short one maybe also after an earlier turn."""
    kind = draw.random()
    before = []
    if draw.random() < 0.25:
        before.append(message("system", draw.choice(SYSTEM_PROMPTS)))
    if kind < 0.10:
        last = tool_call(draw)
    elif kind >= 0.84:
        last = recall(draw, filler)
    else:
        short = arithmetic if kind < 0.38 else simple if kind < 0.72 else story_chat
        last = short(draw)
        if draw.random() < 0.2:
            earlier = simple(draw)
            before += [*earlier.asked, earlier.answer]
    return last._replace(asked=before + last.asked)


def load_template(tokenizer_config: pathlib.Path) -> jinja2.Template:
    def raise_exception(text: str) -> None:
        raise jinja2.TemplateError(text)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(json.loads(tokenizer_config.read_text())["chat_template"])


def chat(draw: random.Random, template: jinja2.Template, filler: list[str]) -> str:
    """A transcript: the prompt as a server renders it, then thought and answer."""
    said = conversation(draw, filler)
    thinks = draw.random() < 0.4

    def render(messages: list[dict], add_generation_prompt: bool) -> str:
        return template.render(messages=messages, tools=said.tools, enable_thinking=thinks,
                               add_generation_prompt=add_generation_prompt)

    prompt = render(said.asked, True)
    transcript = render([*said.asked, said.answer], False)
    opening = "<|im_start|>assistant\n" + ("" if thinks else EMPTY_THOUGHT)
    assert prompt.endswith(opening), prompt[-80:]
    head = prompt if thinks else prompt.removesuffix(EMPTY_THOUGHT)
    assert transcript.startswith(head), (transcript, head)
    answer = transcript.removeprefix(head).removeprefix(EMPTY_THOUGHT)
    return head + (f"<think>\n{said.thought}\n</think>\n\n" if thinks else EMPTY_THOUGHT) + answer
