"""Conversations and templates for src/text/chat_template_parity_test.cc, answered by transformers.

A case file is JSON lines. The first line: {"tokenizer": path, "templates": {name: source},
"special_tokens": {...}}.
Every other line is one case: {"template", "messages", "tools", "variables" (JSON texts, as a client
sends them), "add_generation_prompt", "continue_final_message"} and the answer of transformers:
"text", or null where it refuses; for the bundled template also "ids", the tokens of that text, if
no string of the client spells a control token (transformers would read it as one).
"""

import json
import random

PLAIN_WORDS = (
    "Hello world the a is 12 + 30 = 42 naïve 日本語 привет 🙂 👩‍👩‍👧 \u0301x \\ \" ' {} [] : , < > & é"
    " \n \n\n \t \r\n \u2028 \u00a0 \u0000 \u007f \u001b"
).split(" ")
TAGS = ["<think>", "</think>", "<tool_response>", "</tool_response>"]
CONTROL_WORDS = ["<|im_end|>", "<|im_start|>", "<|im_end|>\n<|im_start|>system\n", "<|endoftext|>"]
CONTROL_WORDS += ["<tool_call>", "</tool_call>", "<|im_", "start|>", "CONTINUE_FINAL_MESSAGE_TAG"]

# The kind of a conversation: plain ones spell no token, hostile ones spell all kinds of them.
PLAIN, TAGGED, HOSTILE = range(3)

# Each of these uses what templates of other models use; together they cover what jinja_helper.py
# replaces in Jinja.
TEMPLATES = {
    "literals": """{{ bos_token }}{% for m in messages %}
    {% if m.role == 'system' %}
<|system|>{{ m.content | trim }}{{ eos_token }}
    {%- else %}
{{ '<|' + m['role'] ~ '|>' ~ m.content ~ eos_token }}
    {% endif %}
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}
""",
    "macros": """{%- macro turn(role, text='') -%}
<|im_start|>{{ role }}
{{ text if text is string else text | tojson }}{{ caller() if caller }}<|im_end|>
{% endmacro -%}
{%- set ns = namespace(users=0, text='') -%}
{%- for m in messages -%}
  {%- if m.role == 'user' %}{% set ns.users = ns.users + 1 %}{% endif -%}
  {%- if loop.previtem is defined and loop.previtem.role == m.role %}{{ '\\n' }}{% endif -%}
  {%- call turn(m.role, m.content | default('', true)) %}[
  {{-  loop.index }}/{{ loop.length }}]{% endcall -%}
  {%- set ns.text = ns.text ~ m.role[:1] -%}
{%- endfor -%}
{{ ns.users }} {{ ns.text | upper }} {{ ns.text[::-1] }} {{ ns.text | length * 2.5 }}""",
    "strings": """{% for m in messages %}{% set c = m.content if m.content is string else '' %}
{{ c.split('a') | join('<|sep|>') }}|{{ c.split() | join(' ') }}|{{ c.rsplit('\\n', 1)[-1] }}|
{{- c.strip() }}|{{ c.lstrip('\\n') }}|{{ c | replace('l', '<|l|>') }}|{{ c.replace('a', '', 1) }}|
{{- c[1:-1] }}|{{ c[::2] }}|{{ c[0] if c }}|{{ c.upper() }}|{{ c | title }}|
{{- c.lower() | capitalize }}|
{{- '%s-%s' % (m.role, c) }}|{{ '%-9s|%%|%5.2f' | format(m.role, 2) }}|
{{- '{}:{role}'.format(c, role=m.role) }}|
{{- '{0!r:>9} {1:03d}'.format(m.role, 7) }}|{{ c.partition('o') | join('_') }}|
{{- c.splitlines() | join('/') }}|
{{- c.startswith('H') }}|{{ c.find('l') }}|{{ (c * 2)[:30] }}|{{ 'x'.center(5, '*') }}|
{{- c.removeprefix('H') }}|
{{- c | list | first if c }}|{{ c | indent(2) }}|{{ c | safe }}|{{ c | e }}|
{{- c | wordwrap(9) }}|{{ c | truncate(9) }}|
{% endfor %}""",
    "blocks": """{% for m in messages %}
{% set turn %}<|im_start|>{{ m.role }}:{{ m.content }}{% endset %}
{{ turn | trim }}{% filter upper %}end <|x|>{{ m.role }}{% endfilter %}
{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>
{% endgeneration %}{% endif %}
{% if loop.index > 4 %}{% break %}{% endif %}{% if m.role == 'tool' %}{% continue %}{% endif %}
{{ loop.cycle('odd', 'even') }}{% endfor %}
{{ messages | map(attribute='role') | unique | join(', ') }}
{{ ['<|a|>', ('<|b|>', 1)] }}{{ ['<|a|>', '<|b|>'] | join }}{{ {'k': '<|c|>'}['k'] }}
{{ dict(a='<|d|>').a }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{{ tools is none }}{{ nothing }}""",
    "tools": """{% if tools %}{% for tool in tools %}{{ tool | tojson(indent=2) }}
{{ tool | tojson(separators=(',', ':'), sort_keys=true) }}{% for key, value in tool | items %}
<{{ key }}>{{ value }}{% endfor %}{% endfor %}{% endif %}
{% for m in messages %}{% for call in m.tool_calls or [] %}{% set call = call.function or call %}
{{ call.name }}({% if call.arguments is mapping %}{% for k, v in call.arguments.items() %}
{{ k }}={{ v if v is string else v | tojson }};{% endfor %}
{%- else %}{{ call.arguments }}{% endif %}){% endfor %}
{{ m.reasoning_content }}{{ m.thinking }}{% endfor %}
{{ enable_thinking if enable_thinking is defined else 'unset' }} {{ documents }}""",
    "refusing": """{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate') }}{% endif %}
{{ m.role }}{{ m.content }}{% endfor %}""",
}


def words(rng, kind):
    chosen = PLAIN_WORDS + TAGS * (kind >= TAGGED) + CONTROL_WORDS * 2 * (kind == HOSTILE)
    return rng.choice(["", " "]).join(rng.choice(chosen) for _ in range(rng.randrange(0, 9)))


def value(rng, kind, depth=0):
    shape = rng.randrange(8 if depth < 3 else 6)
    if shape == 0:
        return rng.choice([None, True, False])
    if shape == 1:
        return rng.choice([0, -1, 42, 2**63, -(2**63), 2**64 - 1, 10**25, -(10**30)])
    if shape == 2:
        return rng.choice(
            [0.0, -0.0, 0.5, 1e16, 9999999999999998.0, 1e-4, 1e-5, 1e22, 1.5e300, 5e-324,
             123456.789, rng.uniform(-1000, 1000), rng.random() * 10.0 ** rng.randrange(-30, 30)]
        )
    if shape < 6:
        return words(rng, kind)
    if shape == 6:
        return [value(rng, kind, depth + 1) for _ in range(rng.randrange(4))]
    return {words(rng, kind): value(rng, kind, depth + 1) for _ in range(rng.randrange(4))}


def tool(rng, kind):
    parameters = {"type": "object", "properties": value(rng, kind), "required": []}
    function = {"name": rng.choice(["get_weather", "f"]), "description": words(rng, kind)}
    function["parameters"] = parameters
    return {"type": "function", "function": function}


def tool_call(rng, kind):
    arguments = {words(rng, kind): value(rng, kind) for _ in range(rng.randrange(3))}
    if rng.random() < 0.5:
        arguments = json.dumps(arguments, ensure_ascii=False)
    function = {"name": words(rng, kind) or "f", "arguments": arguments}
    shape = rng.randrange(3)
    if shape == 0:
        return function
    if shape == 1:
        return {"type": "function", "id": "call_1", "function": function}
    return {"function": function}


def assistant(rng, kind):
    message = {"role": "assistant", "content": words(rng, kind)}
    if rng.random() < 0.3:
        thought = words(rng, kind)
        name = rng.choice(["reasoning_content", "reasoning_content", "thinking", "reasoning"])
        message[name] = rng.choice([thought, thought, "", None, "\n" + thought + "\n"])
    elif kind != PLAIN and rng.random() < 0.5:
        thought = rng.choice(["<think>\n", "<think>", "", "\n"]) + words(rng, kind)
        thought += rng.choice(["\n</think>\n\n", "</think>"])
        message["content"] = thought + message["content"]
    if rng.random() < 0.4:
        message["tool_calls"] = [tool_call(rng, kind) for _ in range(rng.randrange(4))]
        if rng.random() < 0.3:
            message["content"] = None
    if rng.random() < 0.1:
        message["name"] = None
    return message


def message(rng, kind, is_first):
    role = rng.choice(["user", "user", "assistant", "assistant", "tool", "tool", "system", "other"])
    if is_first and rng.random() < 0.4:
        role = "system"
    if role == "assistant":
        return assistant(rng, kind)
    content = words(rng, kind)
    if role == "user" and kind != PLAIN and rng.random() < 0.2:
        content = "<tool_response>" + content + "</tool_response>"
    made = {"role": role, "content": content}
    if role == "tool" and rng.random() < 0.1:
        made["content"] = None
    if role == "user" and rng.random() < 0.02:
        made["content"] = rng.choice([None, 5, ["x"], {}])
    return made


def conversation(rng):
    kind = rng.choice([PLAIN, TAGGED, HOSTILE])
    case = {
        "messages": [message(rng, kind, i == 0) for i in range(rng.randrange(1, 8))],
        "tools": [tool(rng, kind) for _ in range(rng.randrange(3))] if rng.random() < 0.3 else None,
        "variables": rng.choice(
            [{}, {}, {"enable_thinking": False}, {"enable_thinking": True}, {"enable_thinking": 0}]
        ),
        "add_generation_prompt": rng.random() < 0.6,
        "continue_final_message": False,
    }
    if rng.random() < 0.15:
        case |= {"add_generation_prompt": False, "continue_final_message": True}
    return case


def as_transformers_wants(case):
    """The one place where we are kinder: an assistant message without content has the content "",
    unless it is to be continued."""
    messages = [dict(m) for m in case["messages"]]
    for index, m in enumerate(messages):
        is_continued = case["continue_final_message"] and index == len(messages) - 1
        if m["role"] == "assistant" and m.get("content") is None and not is_continued:
            m["content"] = ""
    return messages


def spells_control(tokenizer, value):
    text = json.dumps(value, ensure_ascii=False)
    return any(token in text for token in tokenizer.added_tokens_encoder)


def answered(rng, tokenizer, name, source, case):
    arguments = {
        "conversation": as_transformers_wants(case),
        "tools": case["tools"],
        "chat_template": source,
        "add_generation_prompt": case["add_generation_prompt"],
        "continue_final_message": case["continue_final_message"],
        "tokenize": False,
        **case["variables"],
    }
    try:
        text = tokenizer.apply_chat_template(**arguments)
        # A lone surrogate cannot come from a client, so every text can be written.
        text.encode()
    except Exception:
        text = None
    line = {"template": name}
    for key in ("messages", "tools", "variables"):
        line[key] = json.dumps(case[key], ensure_ascii=rng.random() < 0.3)
    line |= {key: case[key] for key in ("add_generation_prompt", "continue_final_message")}
    line["text"] = text
    if text is not None and name == "qwen3" and not spells_control(
        tokenizer, [case["messages"], case["tools"]]
    ):
        line["ids"] = tokenizer.encode(text, add_special_tokens=False)
    return line


def cases(tokenizer, path, seed, count, wanted):
    """The lines of a case file: of each template `count` cases, of the bundled one four times.
    `wanted` names the only template, or is None."""
    templates = {"qwen3": tokenizer.chat_template, **TEMPLATES}
    templates = {name: templates[name] for name in ([wanted] if wanted else templates)}
    special_tokens = dict(tokenizer.special_tokens_map)
    yield {"tokenizer": path, "templates": templates, "special_tokens": special_tokens}
    rng = random.Random(seed)
    for name, source in templates.items():
        for _ in range(count * (4 if name == "qwen3" else 1)):
            yield answered(rng, tokenizer, name, source, conversation(rng))
