"""Chats that call a tool in the format of Qwen3: the call alone, or the answer after its result."""

import json
import random

from _exchange import Exchange, Message, message
from _questions import words
from _words import CAPITALS


def declaration(name: str, description: str, parameter: str) -> dict:
    parameters = {"type": "object", "properties": {parameter: {"type": "string"}},
                  "required": [parameter]}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = [
    declaration("get_weather", "Get the current weather of a city", "city"),
    declaration("get_time", "Get the local time of a city", "city"),
    declaration("calculator", "Evaluate an arithmetic expression", "expression"),
    declaration("search", "Search the web", "query"),
]


def question(draw: random.Random, tool: str, city: str) -> tuple[str, dict[str, str]]:
    """What the user asks and the arguments of the call."""
    if tool == "get_weather":
        return draw.choice([f"What is the weather in {city}?",
                            f"How is the weather in {city} today?"]), {"city": city}
    if tool == "get_time":
        return draw.choice([f"What time is it in {city}?",
                            f"Tell me the time in {city}."]), {"city": city}
    if tool == "calculator":
        left, right = draw.randint(10, 9999), draw.randint(10, 9999)
        expression = f"{left} {draw.choice('+-*')} {right}"
        return f"Use the calculator to compute {expression}.", {"expression": expression}
    query = " ".join(words(draw, 2))
    return f"Search the web for {query}.", {"query": query}


def calculated(expression: str) -> int:
    left, sign, right = expression.split()
    if sign == "+":
        return int(left) + int(right)
    return int(left) - int(right) if sign == "-" else int(left) * int(right)


def result(draw: random.Random, tool: str, arguments: dict[str, str]) -> tuple[dict, str]:
    """What the tool returns and what the model then says."""
    if tool == "get_weather":
        weather = draw.choice(["sunny", "rainy", "cloudy", "windy", "snowy"])
        degrees = draw.randint(-10, 38)
        return ({"weather": weather, "temperature": degrees},
                f"It is {weather} in {arguments['city']} with {degrees} degrees.")
    if tool == "get_time":
        time = f"{draw.randint(0, 23):02d}:{draw.randint(0, 59):02d}"
        return {"time": time}, f"It is {time} in {arguments['city']}."
    if tool == "calculator":
        value = calculated(arguments["expression"])
        return {"result": value}, f"{arguments['expression']} = {value}"
    count = draw.randint(2, 99)
    return {"results": count}, f"I found {count} results for {arguments['query']}."


def tool_call(draw: random.Random) -> Exchange:
    tools = draw.sample(TOOLS, draw.randint(1, 3))
    tool = draw.choice(tools)["function"]["name"]
    asked, arguments = question(draw, tool, draw.choice(list(CAPITALS.values())))
    function = {"name": tool, "arguments": arguments}
    call: Message = message("assistant", "")
    call["tool_calls"] = [{"type": "function", "function": function}]
    messages = [message("user", asked)]
    if draw.random() < 0.5:
        return Exchange(messages, call, f"I should call {tool}.", tools)
    returned, answer = result(draw, tool, arguments)
    messages += [call, message("tool", json.dumps(returned))]
    return Exchange(messages, message("assistant", answer), "The tool gave the answer.", tools)
