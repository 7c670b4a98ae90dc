"""Texts and token sequences that are hard for a tokenizer, and what `tokenizers` makes of them.

A case file has one JSON object per line. The first names the tokenizer:
    {"tokenizer": path, "replacements": [[from, to], ...], "tokenizers": version, "seed": n}
where the replacements are made in the bytes of the file before it is read. Then come, in any order,
    {"text": t, "ids": [...], "plain_ids": [...]}   encoding with and without added tokens;
                                                    plain_ids is left out where it equals ids
    {"ids": [...], "all": t, "shown": t}            decoding with and without special tokens;
                                                    shown is left out where it equals all
"""

import json
import random
import unicodedata

import tokenizers

QWEN3_MARKS = [
    ["\\\\p{L}+|", "[\\\\p{L}\\\\p{M}]+|"],
    ["[^\\\\s\\\\p{L}\\\\p{N}]+", "[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+"],
]
"""Turns the split rule of a Qwen3 file into that of Qwen3.5."""


def flagged_tokens(first_id):
    """Replacements that append added tokens with every supported flag."""
    extra = [
        ("<left>", {"lstrip": True}),
        ("<right>", {"rstrip": True}),
        ("<both>", {"lstrip": True, "rstrip": True, "special": True}),
        ("<norm>", {"normalized": True}),
        ("<norm>\u1ea4x", {"normalized": True}),
        ("<norm-both>", {"normalized": True, "lstrip": True, "rstrip": True}),
        ("<|im_", {}),
        ("  ", {}),
    ]
    tokens = []
    for i, (content, flags) in enumerate(extra):
        token = {"id": first_id + i, "content": content, "single_word": False, "lstrip": False}
        token |= {"rstrip": False, "normalized": False, "special": False} | flags
        tokens.append(json.dumps(token))
    end = '], "normalizer"'
    return [[end, "".join(", " + token for token in tokens) + end]]


def load(path, replacements=()):
    """(tokenizer, the same without added tokens)"""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    without = json.loads(text)
    without["added_tokens"] = []
    return tokenizers.Tokenizer.from_str(text), tokenizers.Tokenizer.from_str(json.dumps(without))


class Texts:
    """An endless, seeded source of texts."""

    SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
    ALMOST_SPACES = "\u200b\u180e\ufeff\x1c\x1f\x00"
    EMOJI = "😀🫠👩👨👧❤🏴🇩🇪👍🏽🔥☃✈"
    JOINERS = "\u200d\ufe0f\U000e0067\U000e007f\U0001f3fd"
    CONTRACTIONS = ["'s", "'T", "'re", "'VE", "'m", "'ll", "'D", "'\u017f", "'lL", "'r", "'\u017ft", "''s"]
    BLOCKS = [
        (0x20, 0x7F), (0x80, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x780),
        (0x900, 0xE00), (0xE00, 0x1000), (0x1100, 0x1200), (0x1AB0, 0x1B80), (0x1C00, 0x2000),
        (0x2000, 0x2C00), (0x3000, 0x3400), (0x4E00, 0x5100), (0xA640, 0xA700), (0xAC00, 0xAE00),
        (0xF900, 0xFB50), (0xFE00, 0x10000), (0x10A00, 0x11E00), (0x1D100, 0x1D200),
        (0x1E100, 0x1EA00), (0x1F300, 0x1FB00), (0x2F800, 0x2FA20), (0xE0000, 0xE01F0),
    ]  # fmt: skip
    CODE = [
        "def ", "return ", "    ", "\t", "\n", "\r\n", "();", " {", "}\n", "}}", '"}}\n', "==", "!=", "//", "# ",
        "std::vector<int> ", "for (i = 0; i < n; ++i)", "0x1F", "3.14159", "snake_case", "camelCase", "<div class=\"a\">",
        "SELECT * FROM t", "\\n", "&&", "->", "$HOME", "`x`", "'a'", "1_000_000", "{\"name\": \"f\", \"arguments\": {}}",
    ]  # fmt: skip
    WORDS = (
        "the of and hello world Tandem naïve café Straße Москва привет 東京 日本語 中文 한국어 שלום"
        " مرحبا हिन्दी ไทย Việt İstanbul ﬁne don't I'll we've Ελλάδα"
    ).split(" ")

    def __init__(self, seed, added):
        self.random = random.Random(seed)
        self.added = added
        scalars = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
        self.marks = [chr(c) for c in scalars if unicodedata.combining(chr(c))]
        self.composed = [
            chr(c) for c in scalars if unicodedata.normalize("NFD", chr(c)) != chr(c)
        ]

    def scalar(self):
        while True:
            c = self.random.randrange(0x110000)
            if not 0xD800 <= c <= 0xDFFF:
                return chr(c)

    def block_char(self):
        return chr(self.random.randrange(*self.random.choice(self.BLOCKS)))

    def piece(self):
        r = self.random
        kind = r.randrange(16)
        if kind == 0:
            return "".join(r.choice(self.SPACES) for _ in range(r.randrange(1, 6)))
        if kind == 1:
            return r.choice([" ", "  ", "\n", "\n\n", "\r\n", " \n ", "\t", r.choice(self.ALMOST_SPACES)])
        if kind == 2:
            return r.choice(self.WORDS) + r.choice(["", " ", r.choice(self.CONTRACTIONS)])
        if kind == 3:
            return r.choice(self.CONTRACTIONS) + r.choice(["", "x", " ", "1"])
        if kind == 4:
            return "".join(r.choice(self.CODE) for _ in range(r.randrange(1, 4)))
        if kind == 5:
            return r.choice("aeiouAONnk ") + "".join(r.choice(self.marks) for _ in range(r.randrange(1, 5)))
        if kind == 6:
            parts = list(unicodedata.normalize("NFD", r.choice(self.composed)))
            if r.random() < 0.3:
                r.shuffle(parts)
            return "".join(parts) + r.choice(["", r.choice(self.marks)])
        if kind == 7:
            return r.choice(self.composed)
        if kind == 8:
            return "".join(r.choice(self.EMOJI + self.JOINERS) for _ in range(r.randrange(1, 6)))
        if kind == 9:
            return "".join(self.scalar() for _ in range(r.randrange(1, 4)))
        if kind == 10:
            low, high = r.choice(self.BLOCKS)
            return "".join(chr(r.randrange(low, high)) for _ in range(r.randrange(1, 6)))
        if kind == 11:
            return str(r.randrange(10 ** r.randrange(1, 9))) + r.choice(["", ".", "٣", "Ⅷ", "½", "²"])
        if kind == 12:
            token = r.choice(self.added)
            cut = r.randrange(4)
            return [token, token, token[:-1], token[r.randrange(len(token)) :]][cut]
        if kind == 13:
            return r.choice("!?.,:;-_/\\|<>'\"“”…—") * r.randrange(1, 4) + r.choice(["", "\n", "\r\n\n"])
        if kind == 14:
            syllable = chr(r.randrange(0x1100, 0x1113)) + chr(r.randrange(0x1161, 0x1176))
            return syllable + r.choice(["", chr(r.randrange(0x11A7, 0x11C4)), "\u0301"])
        return r.choice("aA0 \n'é中") * r.randrange(1, 40)

    def text(self, pieces_max=12):
        return "".join(self.piece() for _ in range(self.random.randrange(0, pieces_max + 1)))


def encode_case(tokenizer, without, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    plain_ids = without.encode(text, add_special_tokens=False).ids
    case = {"text": text, "ids": ids}
    if plain_ids != ids:
        case["plain_ids"] = plain_ids
    return case


def decode_case(tokenizer, ids):
    case = {"ids": ids, "all": tokenizer.decode(ids, skip_special_tokens=False)}
    shown = tokenizer.decode(ids, skip_special_tokens=True)
    if shown != case["all"]:
        case["shown"] = shown
    return case


def header(path, replacements, seed):
    return {
        "tokenizer": str(path),
        "replacements": replacements,
        "tokenizers": tokenizers.__version__,
        "seed": seed,
    }


def random_cases(tokenizer, without, seed, texts_count, pieces_max=12):
    """Yields an encoding case, the decoding of its ids and of random ids, for each text."""
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    texts = Texts(seed, added)
    ids_count = tokenizer.get_vocab_size(with_added_tokens=True)
    for _ in range(texts_count):
        case = encode_case(tokenizer, without, texts.text(pieces_max))
        yield case
        yield decode_case(tokenizer, case["ids"])
        count = texts.random.randrange(1, 8)
        yield decode_case(tokenizer, [texts.random.randrange(ids_count) for _ in range(count)])


def dump(case):
    return json.dumps(case, ensure_ascii=False, separators=(",", ":"))
