"""One question and its answer, the unit that chats are made of."""

from typing import NamedTuple

Message = dict  # as chat templates take it: role, content and maybe tool_calls


class Exchange(NamedTuple):
    asked: list[Message]  # the last one is the question
    answer: Message
    thought: str  # what stands in the think block when thinking is on
    tools: list[dict] | None = None  # declared to the model; None: no tools


def message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def exchange(question: str, answer: str, thought: str) -> Exchange:
    return Exchange([message("user", question)], message("assistant", answer), thought)
