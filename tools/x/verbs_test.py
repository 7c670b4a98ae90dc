"""Goal: the verbs read their inputs as documented and stop at the first failure.
Method: pure parts called directly; stages that record what ran.
"""

import contextlib
import io
import os
import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from x import build, packages, sims, stages
from x.shell import ROOT, Failed


class SimTest(unittest.TestCase):
    def test_seeds_are_run_once_each_in_batches(self):
        runs = sims.commands("sim", 7, 250, trace=False)
        ranges = [(int(seed), int(count)) for _, seed, _, count in runs]
        self.assertEqual(ranges, [(7, 100), (107, 100), (207, 50)])

    def test_one_seed_with_its_trace(self):
        self.assertEqual(
            sims.commands("sim", 7, 1, trace=True), [["sim", "7", "--seeds", "1", "--trace"]]
        )

    def test_seeds_of_nobody_differ(self):
        first, second = (sims.commands("sim", None, 1, trace=False) for _ in range(2))
        self.assertNotEqual(first, second)


class PackagesTest(unittest.TestCase):
    def test_committed_list(self):
        listed = packages.parse((ROOT / "tools/packages.txt").read_text())
        self.assertEqual(listed["g++"], "build")
        self.assertEqual(listed["clang-19"], "check")

    def test_bad_line_is_named(self):
        with self.assertRaisesRegex(Failed, "packages.txt:2"):
            packages.parse("cmake build\nninja-build\n")
        with self.assertRaisesRegex(Failed, "packages.txt:1"):
            packages.parse("cmake sometimes\n")

    def setup_with(self, missing: list[str], root: list[str] | None, apt: str | None) -> list:
        """The commands that setup() runs on a made-up machine."""
        with (
            mock.patch.object(packages, "missing", return_value=missing),
            mock.patch.object(packages, "as_root", return_value=root),
            mock.patch.object(packages.shutil, "which", return_value=apt),
            mock.patch.object(packages, "run") as run,
            contextlib.redirect_stdout(io.StringIO()),
        ):
            packages.setup()
        return [" ".join(call.args[0]) for call in run.call_args_list]

    def test_setup_does_nothing_when_nothing_is_missing(self):
        self.assertEqual(self.setup_with([], None, None), [])

    def test_setup_installs_as_root_or_by_sudo(self):
        for root, prefix in (([], "env"), (["sudo"], "sudo env")):
            update, install = self.setup_with(["cmake", "g++"], root, "apt-get")
            self.assertEqual(update, f"{prefix} DEBIAN_FRONTEND=noninteractive apt-get update -qq")
            self.assertTrue(install.startswith(prefix + " "), install)
            self.assertTrue(install.endswith(" cmake g++"), install)

    def test_setup_says_what_to_do_when_it_cannot(self):
        with self.assertRaisesRegex(Failed, "no sudo; as root: apt-get install .* cmake$"):
            self.setup_with(["cmake"], None, "apt-get")
        with self.assertRaisesRegex(Failed, "no apt-get; install .* cmake$"):
            self.setup_with(["cmake"], [], None)


class ServeTest(unittest.TestCase):
    def test_defaults_give_way(self):
        host, port = ["--host", "127.0.0.1"], ["--port", "8000"]
        for given, expected in (
            ([], ["serve", "models/tiny-moe", *host, *port]),
            (["--port", "9"], ["serve", "models/tiny-moe", "--port", "9", *host]),
            (["--host=::1", "--port=9"], ["serve", "models/tiny-moe", "--host=::1", "--port=9"]),
            (["--model", "folder"], ["serve", "--model", "folder", *host, *port]),
            (["--model=folder"], ["serve", "--model=folder", *host, *port]),
            (["--port", "9", "folder"], ["serve", "--port", "9", "folder", *host]),
            (
                ["--no-enable-prefix-caching", "folder"],
                ["serve", "--no-enable-prefix-caching", "folder", *host, *port],
            ),
            (["folder", "--dtype", "f32"], ["serve", "folder", "--dtype", "f32", *host, *port]),
        ):
            self.assertEqual(build.serve_arguments(given), expected)

    def test_a_folder_is_the_users(self):
        here = os.getcwd()
        for given, expected in (
            (["some/moe", "--port", "9"], [f"{here}/some/moe", "--port", "9"]),
            (["--enable-eplb", "moe"], ["--enable-eplb", f"{here}/moe"]),
            (["--model", "moe"], ["--model", f"{here}/moe"]),
            (["--model=/moe"], ["--model=/moe"]),
            (["--port", "9"], ["--port", "9"]),
        ):
            self.assertEqual(build.absolute_model(given), expected)

    def test_bench_is_of_the_engine_unless_a_part_is_named(self):
        for given, expected in (
            ([], ["engine"]),
            (["--rounds", "1"], ["engine", "--rounds", "1"]),
            (["comm", "--rounds", "1"], ["comm", "--rounds", "1"]),
            (["transfer", "--provider", "shm"], ["transfer", "--provider", "shm"]),
            (["--help"], ["--help"]),
        ):
            self.assertEqual(build.bench_arguments(given), expected)

    def test_bench_knows_every_part_of_the_program(self):
        declared = re.findall(r"add_bench_(\w+)\(", (ROOT / "apps/bench_verbs.h").read_text())
        self.assertEqual(sorted(build.BENCH_PARTS), sorted(declared))

    def help_of(self, verb, arguments: list[str], is_built: bool) -> tuple[str, list]:
        """What is printed, and the program's arguments if it is run; fails when it would build."""
        output = io.StringIO()
        with (
            tempfile.NamedTemporaryFile() as program,
            mock.patch.object(build, "program_path") as path,
            mock.patch.object(build, "replace_process") as replaced,
            mock.patch.object(build, "program", side_effect=AssertionError("builds")),
            mock.patch.object(packages, "setup", side_effect=AssertionError("installs")),
            contextlib.redirect_stdout(output),
        ):
            path.return_value = Path(program.name if is_built else "/does/not/exist")
            replaced.side_effect = SystemExit  # nothing runs behind it
            with contextlib.suppress(SystemExit):
                verb(arguments)
        return output.getvalue(), [call.args[0][1:] for call in replaced.call_args_list]

    def test_help_builds_nothing(self):
        for verb, given, expected in (
            (build.serve, ["--help"], ["serve", "--help"]),
            (build.serve, ["models/tiny-moe", "-h"], ["serve", "--help"]),
            (build.bench, ["--help"], ["bench", "--help"]),
            (build.bench, ["transfer", "--help"], ["bench", "transfer", "--help"]),
        ):
            text, runs = self.help_of(verb, given, is_built=True)
            self.assertEqual(runs, [expected])
            self.assertNotIn("flags.md", text)
            text, runs = self.help_of(verb, given, is_built=False)
            self.assertEqual(runs, [])
            self.assertIn("docs/flags.md", text)


class StagesTest(unittest.TestCase):
    def run_quietly(self, actions: dict) -> str:
        output = io.StringIO()
        made = [stages.Stage(name, action, f"again {name}") for name, action in actions.items()]
        with contextlib.redirect_stdout(output):
            try:
                stages.run_stages(made)
            except Failed as failure:
                return f"{output.getvalue()}\nfailure: {failure}"
        return output.getvalue()

    def test_table_of_a_good_run(self):
        text = self.run_quietly({"first": lambda: None, "second": lambda: None})
        self.assertRegex(text, r"first +0\.0 s  ok\nsecond +0\.0 s  ok\ntotal +0\.0 s\n$")

    def test_stops_at_the_first_failure(self):
        def fail() -> None:
            raise Failed("two of three")

        ran = []
        text = self.run_quietly({"good": lambda: None, "bad": fail, "later": lambda: ran.append(1)})
        self.assertEqual(ran, [])
        self.assertRegex(text, r"bad +0\.0 s  FAILED\n")
        self.assertIn("failure: stage 'bad' failed: two of three\nagain: again bad", text)


if __name__ == "__main__":
    unittest.main()
