"""Goal: every rule of ./x tidy finds a planted violation, and stays silent on what it allows.
Method: made-up checkouts of a few files; each test plants one thing and compares what is reported.
"""

import unittest

from x.shell import ROOT
from x.tidy import code, docs, functions, layers
from x.tidy.tree import Tree, code_only

LAYERS = (ROOT / "tools/layers.txt").read_text()
WORDS = (ROOT / "tools/tidy_words.txt").read_text()


def rules(check, texts: dict[str, str]) -> list[tuple[str, int, str]]:
    given = {"tools/layers.txt": LAYERS, "tools/tidy_words.txt": WORDS} | texts
    return [(f.path, f.line, f.rule) for f in check(Tree.of_texts(given))]


class IncludeTest(unittest.TestCase):
    def reported(self, path: str, *includes: str) -> list[int]:
        text = "".join(f"#include {include}\n" for include in includes)
        return [line for _, line, _ in rules(layers.check, {path: text})]

    def allowed(self, path: str, *includes: str) -> None:
        self.assertEqual(self.reported(path, *includes), [], path)

    def refused(self, path: str, *includes: str) -> None:
        lines = list(range(1, len(includes) + 1))
        self.assertEqual(self.reported(path, *includes), lines, path)

    def test_layers_follow_the_table(self):
        self.allowed("src/kv/a.cc", '"kv/b.h"', '"base/result.h"', "<vector>")
        self.refused("src/kv/a.cc", '"device/device.h"', '"engine/engine.h"')
        self.refused("src/model/a.cc", '"kv/b.h"', '"cpu/vector.h"')
        self.refused("src/engine/a.cc", '"text/tokenizer.h"', '"server/http.h"')

    def test_permissions_are_not_transitive(self):
        self.allowed("src/engine/a.cc", '"model/config.h"')
        self.refused("src/engine/a.cc", '"io/file.h"')

    def test_base_includes_nothing_of_ours(self):
        self.refused("src/base/a.cc", '"io/file.h"')
        self.refused("src/base/a_test.cc", '"io/file.h"', '"cpu/vector.h"')

    def test_one_header_of_a_layer(self):
        self.allowed("src/server/a.cc", '"engine/request.h"', '"text/tokenizer.h"')
        self.refused("src/server/a.cc", '"engine/engine.h"', '"model/config.h"')

    def test_only_cpu_files_of_ops_see_cpu(self):
        self.allowed("src/ops/linear/linear_cpu.cc", '"cpu/vector.h"', '"ops/linear/rows_cpu.h"')
        self.refused("src/ops/linear/linear.cc", '"cpu/vector.h"', '"ops/linear/rows_cpu.h"')
        self.refused("src/ops/linear/linear.h", '"cpu/vector.h"')

    def test_tests_see_cpu_and_io(self):
        for kind in ("test", "bench", "fuzz"):
            self.allowed(f"src/model/a_{kind}.cc", '"cpu/cpu_device.h"', '"io/file.h"')
        self.refused("src/model/a_test.cc", '"server/http.h"')

    def test_io_in_weight_files_only(self):
        self.allowed("src/model/safetensors_source.cc", '"io/mapped_file.h"')
        self.refused("src/model/config.cc", '"io/file.h"')

    def test_libraries_have_owners(self):
        self.allowed("src/server/a.cc", "<boost/asio.hpp>", "<nlohmann/json.hpp>")
        self.refused("src/engine/a.cc", "<boost/asio.hpp>", "<nlohmann/json.hpp>", "<xxhash.h>")
        self.refused("src/base/a.cc", "<eigen/dense.h>", "<zlib.h>")
        self.allowed("src/kv/a_test.cc", "<gtest/gtest.h>")
        self.allowed("src/kv/testing/fake.h", "<gtest/gtest.h>", '"io/file.h"')
        self.refused("src/kv/a.cc", "<gtest/gtest.h>")

    def test_standard_headers_that_do_not_belong(self):
        self.refused("src/text/a.cc", "<fstream>", "<filesystem>", "<regex>", "<iostream>")
        self.allowed("src/text/a_test.cc", "<fstream>", "<iostream>")
        self.allowed("src/io/a.cc", "<fstream>", "<filesystem>")

    def test_quoted_includes_start_with_a_layer(self):
        self.refused("src/kv/a.cc", '"page_pool.h"', '"../base/result.h"', '"apps/main.h"')
        self.allowed("src/cpu/vector.cc", '"hwy/foreach_target.h"')

    def test_apps_may_include_anything(self):
        self.allowed("apps/main.cc", '"cpu/cpu_device.h"', '"server/http.h"', "<CLI/CLI.hpp>")

    def test_unknown_layer(self):
        self.assertEqual(
            rules(layers.check, {"src/misc/a.cc": ""}), [("src/misc/a.cc", 1, "layers")]
        )

    def test_bad_tables(self):
        for text, message in (
            ("layer a: b\nlayer b: a\n", "circle: a -> b -> a"),
            ("layer a: missing\n", "missing, which is no layer"),
            ("layer a -> b\n", "layers.txt:1: want"),
        ):
            with self.assertRaisesRegex(layers.BadTable, message):
                layers.parse(text)


class CodeTest(unittest.TestCase):
    def one(self, path: str, text: str, *expected: str) -> None:
        found = [rule for _, _, rule in rules(code.check, {path: text})]
        self.assertEqual(found, list(expected), f"{path}: {text[:60]!r}")

    def test_sizes(self):
        line = "int a;\n"
        self.one("src/kv/a.h", "#pragma once\n" + line * 149)
        self.one("src/kv/a.h", "#pragma once\n" + line * 150, "size")
        self.one("src/kv/a.h", "#pragma once\n// long: one table of limits\n" + line * 150)
        self.one("src/kv/a.cc", line * 400)
        self.one("src/kv/a.cc", line * 401, "size")
        self.one("src/kv/a.cc", "// long: one parser\n" + line * 700)
        self.one("src/kv/a.cc", "// long: one parser\n" + line * 800, "size")
        self.one("src/kv/a.cc", "// long:\n" + line * 500, "size")
        self.one("src/kv/a.cc", "// Written by tools/make.py. Do not edit.\n" + line * 2000)
        self.one("tools/a.py", "pass\n" * 401, "size")
        self.one("src/kv/testing/a.h", "#pragma once\n" + line * 399)
        self.one("src/kv/testing/a.h", "#pragma once\n" + line * 400, "size")

    def test_pragma_once(self):
        self.one("src/kv/a.h", "int a;\n", "pragma")
        self.one("src/kv/a.h", "// about #pragma once\nint a;\n", "pragma")

    def test_columns(self):
        self.one("src/kv/a.cc", "// " + "é" * 97 + "\n")
        self.one("src/kv/a.cc", "// " + "e" * 98 + "\n", "columns")
        self.one("docs/a.md", "e" * 101 + "\n", "columns")
        self.one("tools/a.py", '"' + "e" * 101 + '"\n', "columns")
        self.one("tools/a.py", '# wide: one case a line\n"' + "e" * 101 + '"\n')
        self.one("docs/a.md", "| " + "e" * 101 + " |\n```\n" + "e" * 101 + "\n```\n")
        self.one("src/text/a.cc", 'const char* x = R"(' + "e" * 101 + ')";\n')

    def test_printing(self):
        for call in ("printf(x);", "std::fprintf(stderr, x);", "puts(x);", "std::cout << x;"):
            self.one("src/kv/a.cc", call + "\n", "calls")
        self.one("src/kv/a.cc", "std::snprintf(text, 8, x);\n")
        self.one("src/kv/a.cc", '// printf(x)\nconst char* a = "printf(x)";\n')
        self.one("src/kv/a_test.cc", "std::cout << seed;\n")
        self.one("src/base/check.cc", "std::fprintf(stderr, x);\n")
        self.one("apps/main.cc", "std::cout << x;\n")

    def test_regex_and_environment(self):
        self.one("src/text/a.cc", "std::regex r;\n", "calls")
        self.one("src/text/a_test.cc", "std::regex_match(a, b);\n", "calls")
        self.one("src/text/a.cc", 'auto x = std::getenv("X");\n', "calls")
        self.one("apps/main.cc", 'auto x = std::getenv("X");\n')

    def test_todo(self):
        self.one("src/kv/a.cc", "// TODO: later\n", "todo")
        self.one("src/kv/a.cc", "// TODO(me): later\n", "todo")
        self.one("src/kv/a.cc", "// TODO(#12): later\n")

    def test_code_only_keeps_lines(self):
        text = 'a("{"); /* {\n{ */ b(\'{\'); // {\nR"x({\n)")x" 1\'000;\n'
        self.assertEqual(code_only(text).count("\n"), text.count("\n"))
        self.assertNotIn("{", code_only(text))
        self.assertIn("1'000", code_only(text))


class FunctionTest(unittest.TestCase):
    def lengths(self, text: str) -> list[int]:
        return [function.lines_count for function in functions.functions(text)]

    def test_what_is_a_function(self):
        self.assertEqual(self.lengths("int f() {\n  return 1;\n}\n"), [3])
        self.assertEqual(self.lengths("namespace a {\nint f() {\n}\n}\n"), [2])
        self.assertEqual(self.lengths('extern "C" int f() {\n}\n'), [2])
        self.assertEqual(self.lengths('extern "C" {\nint g() {}\n}\n'), [1])
        self.assertEqual(self.lengths("template <class T>\nvoid f(T t)\n{\n}\n"), [4])
        member = "int f() {\n if (x) {\n }\n }\n"
        self.assertEqual(self.lengths("class A : B<int> {\n" + member + "};\n"), [4])
        self.assertEqual(self.lengths("int table[] = {\n1,\n2};\nenum class A : int { x };\n"), [])
        self.assertEqual(self.lengths("TEST(A, B) {\n  auto f = [](int a) {\n  };\n}\n"), [4])

    def test_branches_of_the_preprocessor(self):
        text = "#if A\nint f() {\n#else\nint f(int a) {\n#endif\n  return 1;\n}\nint g() {\n}\n"
        self.assertEqual(self.lengths(text), [6, 2])
        self.assertEqual(self.lengths("#define A() {\\\n  {\nint g() {\n}\n"), [2])

    def test_tripwire(self):
        body = "  work();\n"
        for text, expected in (
            ("void f() {\n" + body * 68 + "}\n", []),
            ("int a;\nvoid f() {\n" + body * 69 + "}\n", [("src/kv/a.cc", 2, "function")]),
            ("// long: a straight list of ops\nvoid f() {\n" + body * 69 + "}\n", []),
            ("void f() {\n" + body * 40 + "// long: too late\n" + body * 40 + "}\n",
             [("src/kv/a.cc", 1, "function")]),
        ):
            self.assertEqual(rules(functions.check, {"src/kv/a.cc": text}), expected)


class DocsTest(unittest.TestCase):
    def test_readme_per_layer(self):
        code_file = {"src/kv/pool/a.cc": ""}
        self.assertEqual(rules(docs.check, code_file), [("src/kv/README.md", 1, "readme")])
        self.assertEqual(rules(docs.check, {"src/kv/a.h": ""}), [])
        self.assertEqual(rules(docs.check, code_file | {"src/kv/README.md": "a\n" * 60}), [])
        long = code_file | {"src/kv/README.md": "a\n" * 61}
        self.assertEqual(rules(docs.check, long), [("src/kv/README.md", 61, "readme")])

    def test_links(self):
        text = "[a](b.md#part)\n[c](../README.md)\n[d](gone.md)\n[e](https://x.org) [f](#here)\n"
        text += "[g](notes) [h](notes/)\n```\n[i](gone.md)\n```\n"
        tree = {"docs/a.md": text, "docs/b.md": "", "README.md": "", "docs/notes/c.md": ""}
        self.assertEqual(rules(docs.check, tree), [("docs/a.md", 3, "links")])

    def test_words(self):
        for line, expected in (
            ("see /work" + "/main/src", ["words"]),
            ("../sha" + "red/design", ["words"]),
            ("// FIX" + "ME", ["words"]),
            ("<<<<<<" + "< HEAD", ["words"]),
            ("src/work/main, https://x.org/home/page, a < b", []),
        ):
            found = [rule for _, _, rule in rules(docs.check, {"docs/a.md": line + "\n"})]
            self.assertEqual(found, expected, line)


if __name__ == "__main__":
    unittest.main()
