# long: one program, sent as one string to an isolated interpreter that imports nothing of ours
"""Renders one chat template for the server, in a process of its own.

A template comes with a model file, so it is untrusted code, and the conversation comes from a
client, so a string in it that spells a control token must stay text. The first is the work of
Jinja's sandbox, of the limits set below and of the parent, which kills this process when a render
takes too long. The second is the work of Text.

Protocol on stdin and stdout: frames of a 4-byte little-endian length and that many bytes of JSON.
First frame: {template, limits}. Each further one: {messages, tools, add_generation_prompt,
variables}. The answer to either is {} or {text, runs, first_from_client} or {error: {kind, what}}.
"""

import json
import re
import resource
import string
import sys

sys.path.append("/usr/lib/python3/dist-packages")  # -S leaves it out; jinja2 lives there

WHAT_CHARACTERS_MAX = 2000


def read_frame():
    header = sys.stdin.buffer.read(4)
    if len(header) < 4:
        sys.exit(0)  # The server is gone.
    return json.loads(sys.stdin.buffer.read(int.from_bytes(header, "little")))


def write_frame(answer):
    data = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
    sys.stdout.buffer.write(len(data).to_bytes(4, "little") + data)
    sys.stdout.buffer.flush()


def error_answer(kind, what):
    return {"error": {"kind": kind, "what": str.__str__(what)[:WHAT_CHARACTERS_MAX]}}


try:
    import datetime
    import html  # noqa: F401
    import jinja2
    import jinja2.compiler
    import jinja2.constants  # Here, like the next ones, because no file can be opened later.
    import jinja2.debug
    import jinja2.ext
    import jinja2.runtime
    import jinja2.sandbox
    import jinja2.utils
    import pprint  # noqa: F401
    import textwrap  # noqa: F401
except ImportError as error:
    read_frame()
    write_frame(error_answer("setup", f"{error}; install Debian's python3-jinja2"))
    sys.exit(1)


# --- Where text comes from ----------------------------------------------------------------------


class Text(str):
    """A string with one mask byte a character: 1 if the template wrote it, 0 if a client did.

    Only literals of the template start as 1. A plain str counts as client text, so an operation
    that this class does not follow makes its whole result client text, which is the safe side.
    """

    __slots__ = ("_mask",)

    def __new__(cls, text="", mask=None):
        self = str.__new__(cls, text)
        self._mask = mask_of(text) if mask is None else mask
        return self

    def __str__(self):
        return self

    def __add__(self, other):
        if not isinstance(other, str) or hasattr(other, "__html__"):
            return NotImplemented
        return Text(str.__add__(self, other), self._mask + mask_of(other))

    def __radd__(self, other):
        if not isinstance(other, str) or hasattr(other, "__html__"):
            return NotImplemented
        return Text(str.__add__(other, self), mask_of(other) + self._mask)

    def __mul__(self, count):
        return Text(str.__mul__(self, count), self._mask * count)

    __rmul__ = __mul__

    def __mod__(self, arguments):
        return format_percent(self, arguments)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return Text(str.__getitem__(self, index), self._mask[index])
        return Text(str.__getitem__(self, index), bytes((self._mask[index],)))

    def __iter__(self):
        for index, character in enumerate(str.__iter__(self)):
            yield Text(character, self._mask[index : index + 1])

    def join(self, items):
        items = list(items)
        joined = str.join(self, items)
        return Text(joined, self._mask.join(map(mask_of, items)))

    def replace(self, old, new, count=-1, /):
        expected = str.replace(self, old, new, count)
        if not old:
            return derived(expected, self, new)
        mask, position = [], 0
        while count != 0 and (found := str.find(self, old, position)) >= 0:
            mask += (self._mask[position:found], mask_of(new))
            position = found + len(old)
            count -= 1
        mask.append(self._mask[position:])
        return Text(expected, b"".join(mask))

    def _cut(self, start, length):
        return self[start : start + length]

    def strip(self, characters=None, /):
        start = len(self) - len(str.lstrip(self, characters))
        return self._cut(start, len(str.strip(self, characters)))

    def lstrip(self, characters=None, /):
        return self[len(self) - len(str.lstrip(self, characters)) :]

    def rstrip(self, characters=None, /):
        return self._cut(0, len(str.rstrip(self, characters)))

    def removeprefix(self, prefix, /):
        return self[len(prefix) :] if str.startswith(self, prefix) else self

    def removesuffix(self, suffix, /):
        return self[: len(self) - len(suffix)] if suffix and str.endswith(self, suffix) else self

    def _locate(self, parts, separator):
        """Parts of self, in order, as slices of self."""
        position, located = 0, []
        for part in parts:
            if separator is None:
                position = str.find(self, part, position)
            located.append(self._cut(position, len(part)))
            position += len(part) + (0 if separator is None else len(separator))
        return located

    def split(self, sep=None, maxsplit=-1):
        return self._locate(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep=None, maxsplit=-1):
        return self._locate(str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends=False):
        position, located = 0, []
        for line, whole in zip(str.splitlines(self, keepends), str.splitlines(self, True)):
            located.append(self._cut(position, len(line)))
            position += len(whole)
        return located

    def partition(self, sep, /):
        return tuple(self._locate(str.partition(self, sep), ""))

    def rpartition(self, sep, /):
        return tuple(self._locate(str.rpartition(self, sep), ""))


def mask_of(text):
    return text._mask if isinstance(text, Text) else bytes(len(text))


def template_text(text):
    return Text(text, b"\1" * len(text))


def client_text(text):
    return Text(text, bytes(len(text)))


def derived(text, *sources):
    """A string made of sources in a way that is not followed further."""
    if all(0 not in mask_of(source) for source in sources):
        return template_text(text)
    return client_text(text)


def text_of(value):
    """What {{ value }} prints. A number or a constant cannot spell a control token, and belongs
    to a token that the template puts together ("<|image_" ~ loop.index ~ "|>")."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float)):
        return template_text(str(value))
    return str(value)


def keeps_places(name):
    plain = getattr(str, name)

    def method(self):
        changed = plain(self)
        # Such a method maps character by character unless one becomes several.
        return Text(changed, self._mask) if len(changed) == len(self) else derived(changed, self)

    return method


def made_of_arguments(name):
    plain = getattr(str, name)

    def method(self, *arguments, **named):
        texts = [value for value in (*arguments, *named.values()) if isinstance(value, str)]
        return derived(plain(self, *arguments, **named), self, *texts)

    return method


for _name in ("capitalize", "casefold", "lower", "swapcase", "title", "upper"):
    setattr(Text, _name, keeps_places(_name))
for _name in ("center", "expandtabs", "ljust", "rjust", "zfill"):
    setattr(Text, _name, made_of_arguments(_name))


PERCENT_FIELD = re.compile(
    r"%(?:\((?P<name>[^()]*)\))?[#0\-+ ]*\d*(?:\.\d+)?[hlL]?(?P<type>[a-zA-Z%])"
)


def format_percent(pattern, arguments):
    expected = str.__mod__(pattern, arguments)
    remaining = list(arguments) if isinstance(arguments, tuple) else [arguments]
    pieces, position = [], 0
    for field in PERCENT_FIELD.finditer(pattern):
        pieces.append(pattern[position : field.start()])
        position = field.end()
        spec, name = str.__str__(field.group()), field.group("name")
        if field.group("type") == "%":
            pieces.append(pattern[field.start() : field.start() + 1])
        elif name is not None:
            pieces.append(format_field(spec == f"%({name})s", arguments[name], spec, arguments))
        elif remaining:
            value = remaining.pop(0)
            pieces.append(format_field(spec == "%s", value, spec, (value,)))
    pieces.append(pattern[position:])
    followed = join_texts(pieces)
    return followed if str.__eq__(followed, expected) else client_text(expected)


def format_field(is_whole, value, spec, arguments):
    return text_of(value) if is_whole else str.__mod__(spec, arguments)


class Formatter(jinja2.sandbox.SandboxedFormatter):
    """str.format that follows where text comes from through plain fields ("{}", "{name}")."""

    def format_text(self, pattern, arguments, named):
        expected = self.vformat(pattern, arguments, named)
        pieces, used = [], 0
        for literal, name, spec, conversion in string.Formatter.parse(self, pattern):
            pieces.append(derived(literal, pattern))
            if name is None:
                continue
            if name == "":
                name, used = str(used), used + 1
            value, _ = self.get_field(name, arguments, named)
            if "{" in spec:
                return client_text(expected)
            if spec or conversion:
                pieces.append(client_text(format(self.convert_field(value, conversion), spec)))
            else:
                pieces.append(text_of(value))
        followed = join_texts(pieces)
        return followed if str.__eq__(followed, expected) else client_text(expected)


def join_texts(items):
    return EMPTY.join(map(text_of, items))


EMPTY = Text("", b"")
RUN = re.compile(rb"\x00+|\x01+")


# --- The environment that transformers gives a chat template ------------------------------------


class LiteralMarker(jinja2.compiler.CodeGenerator):
    """Compiles every string literal of the template into a Text that the template wrote."""

    def literal(self, text):
        self.environment.literals.append(template_text(text))
        return f"environment.literals[{len(self.environment.literals) - 1}]"

    def constant(self, value):
        if isinstance(value, str) and not hasattr(value, "__html__"):
            return self.literal(value)
        if isinstance(value, list):
            return "[" + "".join(self.constant(item) + ", " for item in value) + "]"
        if isinstance(value, tuple):
            return "(" + "".join(self.constant(item) + ", " for item in value) + ")"
        if isinstance(value, dict):
            items = (f"{self.constant(key)}: {self.constant(value[key])}, " for key in value)
            return "{" + "".join(items) + "}"
        return str(value) if isinstance(value, float) else repr(value)

    def visit_Const(self, node, frame):
        self.write(self.constant(node.as_const(frame.eval_ctx)))

    def visit_TemplateData(self, node, frame):
        self.write(self.literal(node.data))

    def _output_const_repr(self, group):
        return self.literal("".join(group))


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks the assistant's tokens for training; here its body alone counts."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    code_generator_class = LiteralMarker
    concat = staticmethod(join_texts)

    def wrap_str_format(self, value):
        guarded = super().wrap_str_format(value)
        if guarded is None or not isinstance(value.__self__, Text):
            return guarded
        pattern, is_map = value.__self__, value.__name__ == "format_map"

        def format_text(*arguments, **named):
            if is_map:
                (named,), arguments = arguments, ()
            return Formatter(self).format_text(pattern, arguments, named)

        return format_text


class Namespace(jinja2.utils.Namespace):
    """Refuses underscore names: they lead to the interpreter's internals."""

    def __init__(*arguments, **named):
        self, arguments = arguments[0], arguments[1:]
        attributes = dict(*arguments, **named)
        for name in attributes:
            Namespace._check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        Namespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace cannot hold {name!r}")


class DictMaker:
    """dict(...) without the attributes of the type."""

    def __call__(self, *arguments, **named):
        return dict(*arguments, **named)

    def fromkeys(self, *arguments):
        return dict.fromkeys(*arguments)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def strftime_now(pattern):
    return datetime.datetime.now().strftime(pattern)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


@jinja2.pass_environment
def join_filter(environment, value, d="", attribute=None):
    if attribute is not None:
        value = map(jinja2.filters.make_attrgetter(environment, attribute), value)
    return Text(text_of(d)).join(map(text_of, value))


def make_environment():
    # Compiled templates take the function of `~` from this module by name.
    jinja2.runtime.str_join = join_texts
    environment = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols],
        finalize=text_of,
    )
    environment.literals = []
    environment.filters.update(tojson=tojson, join=join_filter)
    environment.globals.update(
        raise_exception=raise_exception,
        strftime_now=strftime_now,
        dict=DictMaker(),
        namespace=Namespace,
    )
    return environment


# --- Rendering ----------------------------------------------------------------------------------


class OutputTooLong(Exception):
    pass


def mark_client(value):
    """The same JSON with every string client text. Keys stay plain, which counts as that too."""
    if isinstance(value, str):
        return client_text(value)
    if isinstance(value, list):
        return [mark_client(item) for item in value]
    if isinstance(value, dict):
        return {key: mark_client(item) for key, item in value.items()}
    return value


def mark_template(values):
    return {key: template_text(v) if isinstance(v, str) else v for key, v in values.items()}


def render(template, special_tokens, request, output_bytes_max):
    variables = {"documents": None, **special_tokens, **mark_client(request["variables"])}
    for name in ("messages", "tools", "add_generation_prompt"):
        variables[name] = mark_client(request[name])
    pieces, size = [], 0
    for piece in template.generate(variables):
        size += len(piece)
        if size > output_bytes_max:
            raise OutputTooLong
        pieces.append(piece)
    text = join_texts(pieces)
    runs = []
    for run in RUN.finditer(text._mask):
        data = str.__getitem__(text, slice(*run.span())).encode("utf-8", "replace")
        runs.append(len(data))
    plain = str.__str__(text).encode("utf-8", "replace").decode()
    first_from_client = bool(text._mask) and text._mask[0] == 0
    if sum(runs) > output_bytes_max:
        raise OutputTooLong
    return {"text": plain, "runs": runs, "first_from_client": first_from_client}


def template_line(error):
    """The line of the template that an exception came from."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f" (line {line} of the template)"


def answer_or_error(work):
    """Runs work; every exception that a template can cause becomes an answer."""
    try:
        return work()
    except MemoryError:
        return error_answer("memory", "")
    except OutputTooLong:
        return error_answer("output", "")
    except jinja2.exceptions.TemplateSyntaxError as error:
        return error_answer("template", f"line {error.lineno}: {error.message}")
    except jinja2.exceptions.TemplateError as error:
        return error_answer("template", f"{error.message}{template_line(error)}")
    except Exception as error:
        what = f"{type(error).__name__}: {error}{template_line(error)}"
        return error_answer("template", what)


def warm_up():
    """Makes Jinja and Python load what they load late, because afterwards no file can be opened."""
    source = """{{ "\\u00e9" }}{{ strftime_now("%c %Z") }}{{ [1] | tojson }}{{ none.x.y }}"""
    answer_or_error(lambda: list(make_environment().from_string(source).generate({})))
    try:
        make_environment().from_string("{% broken")
    except jinja2.exceptions.TemplateSyntaxError:
        pass


def limit_resources(address_space_bytes):
    for what, limit in (
        (resource.RLIMIT_AS, address_space_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(what, (limit, limit))


def allow_processor_time(seconds):
    """The parent kills a slow render; this ends one whose parent is gone."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def main():
    setup = read_frame()
    limits = setup["limits"]
    warm_up()
    limit_resources(limits["address_space_bytes"])
    environment = make_environment()
    special_tokens = mark_template(setup["special_tokens"])
    template = None

    def compile_template():
        nonlocal template
        template = environment.from_string(setup["template"])
        return {}

    allow_processor_time(limits["processor_s"])
    write_frame(answer_or_error(compile_template))
    while True:
        request = read_frame()
        allow_processor_time(limits["processor_s"])
        output_bytes_max = limits["output_bytes"]
        write_frame(
            answer_or_error(lambda: render(template, special_tokens, request, output_bytes_max))
        )


main()
