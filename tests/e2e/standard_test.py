"""Goal: odd parents and impatient users do not turn a clean end into a hang or a killed process.

Method: `chat` with a closed standard input must end, not read another file that got its number; a
server that gets a burst of SIGTERM, some of them during its teardown, must end with 0; a seed that
does not fit is refused, and so is, at the start, an end token that the model does not have.
"""

import json
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from program import MODEL, TANDEM, run
from tandem_server import TandemServer


class Standard(unittest.TestCase):
    def test_a_closed_standard_input_is_an_empty_one(self):
        ended = subprocess.run(
            ["sh", "-c", 'exec "$0" chat "$1" <&-', TANDEM, MODEL],
            capture_output=True,
            timeout=60,
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_a_burst_of_sigterm_ends_cleanly(self):
        for _ in range(3):
            server = TandemServer()
            while server.process.poll() is None:
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.0005)
            server.process.stdout.close()
            self.assertEqual(server.process.returncode, 0)

    def test_output_that_is_lost_is_an_error(self):
        with open("/dev/full", "w") as full:
            ended = subprocess.run(
                [TANDEM, "inspect", MODEL], stdout=full, stderr=subprocess.PIPE, timeout=60
            )
        self.assertEqual(ended.returncode, 1)
        self.assertIn(b"standard output", ended.stderr)

    def test_a_wrong_command_line_ends_with_2(self):
        for wrong in (
            ("serve",),
            ("serve", MODEL, "--no-such-flag"),
            ("serve", MODEL, "--port", "70000"),
            ("serve", MODEL, "--dtype", "int3"),
            ("serve", MODEL, "--host", ""),
            ("serve", MODEL, "--collective-late-after", "nan"),
            ("serve", MODEL, "--max-num-seqs", "0"),
            ("serve", MODEL, "--block-size", "0"),
            ("serve", MODEL, "--matrix-path", "abacus"),
            ("serve", MODEL, "--nnodes", "2", "--dp", "2"),
            ("serve", MODEL, "--dist-init-addr", "foo"),
            ("generate", MODEL),
            ("generate", MODEL, ""),
            ("generate", MODEL, "hi", "--prompts", "file"),
            ("generate", MODEL, "hi", "--temperature", "-1"),
            ("generate", MODEL, "hi", "--temperature", "nan"),
            ("generate", MODEL, "hi", "--top-p", "0"),
            ("generate", MODEL, "hi", "--top-k", "-1"),
            ("generate", MODEL, "hi", "--top-k", "many"),
            ("bench",),
        ):
            with self.subTest(wrong):
                ended = run(*wrong)
                self.assertEqual((ended.returncode, ended.stdout), (2, ""))
                self.assertNotEqual(ended.stderr, "")

    def test_a_command_that_fails_ends_with_1(self):
        for failing in (
            ("serve", "/no/such/folder"),
            ("eval", MODEL, "--file", "/no/such/file"),
        ):
            with self.subTest(failing):
                self.assertEqual(run(*failing).returncode, 1)

    def test_asking_for_help_or_the_version_is_no_failure(self):
        for asking in (("--help",), ("serve", "--help"), ("--version",), ("version",)):
            self.assertEqual(run(*asking).returncode, 0, asking)

    def test_a_benchmark_too_large_to_count_is_refused(self):
        for flags, told in (
            (("--prompts", "4294967295"), "must be 1 to 1048576"),
            (("--batches", "65536", "--contexts", "1000000"), "--batches 65536"),
            (("--decode-steps", "1048576", "--rounds", "1048576"), "1048576 rounds"),
        ):
            with self.subTest(flags):
                ended = run("bench", "engine", MODEL, *flags)
                self.assertEqual((ended.returncode, ended.stdout), (1, ""))
                self.assertIn(told, ended.stderr)

    def test_a_seed_beyond_64_bits_is_refused(self):
        for seed in ("-1", "18446744073709551616", "1.5"):
            ended = run("generate", MODEL, "hi", "--max-tokens", 1, "--seed", seed)
            self.assertNotEqual(ended.returncode, 0, seed)
            self.assertIn("--seed", ended.stderr)

    def test_an_end_token_beyond_the_model_is_refused_at_the_start(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in MODEL.iterdir():
                (Path(folder) / file.name).symlink_to(file)
            tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
            last = dict(tokenizer["added_tokens"][-1], id=4096, content="<end>")
            tokenizer["added_tokens"].append(last)
            config = json.loads((MODEL / "tokenizer_config.json").read_text())
            config["eos_token"] = "<end>"
            for name, value in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
                (Path(folder) / name).unlink()
                (Path(folder) / name).write_text(json.dumps(value))
            ended = run("serve", folder, "--port", 0)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("eos_token is id 4096", ended.stderr)


if __name__ == "__main__":
    unittest.main()
