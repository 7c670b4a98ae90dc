"""Goal: `tandem chat` keeps a conversation, and its commands, limits and Ctrl-C work.

Method: lines through a pipe, greedy on models/tiny-moe, against `tandem generate` and each other;
an interrupt signal while a long answer runs, and one at the prompt.
"""

import json
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from program import MODEL, TANDEM, run

FLAGS = ["--no-thinking", "--temperature", "0"]
FACTS = "Remember this. David lives in Ottawa. Rosa lives in Bern. Iris lives in Oslo."
ASKED = "Where does Rosa live?"


def chat(*lines, flags=FLAGS):
    return run("chat", MODEL, *flags, text="".join(line + "\n" for line in lines))


class Chat(unittest.TestCase):
    def endless_model(self):
        """A folder with models/tiny-moe that does not say which token ends a turn."""
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        folder = Path(holder.name)
        for path in MODEL.iterdir():
            (folder / path.name).symlink_to(path)
        for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
            values = json.loads((MODEL / name).read_text())
            values.pop("eos_token_id", None)
            values.pop("eos_token", None)
            (folder / name).unlink()
            (folder / name).write_text(json.dumps(values))
        return folder

    def test_answers_every_line_until_the_end_of_input(self):
        done = chat("What is 12 + 30?", "", "What is 3 + 4?")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "12 + 30 = 42\n3 + 4 = 7\n")

    def test_a_last_line_without_an_end_is_answered(self):
        done = run("chat", MODEL, *FLAGS, text="What is 3 + 4?")
        self.assertEqual((done.returncode, done.stdout), (0, "3 + 4 = 7\n"))

    def test_exit_leaves_at_once(self):
        done = chat("What is 3 + 4?", "/exit", "What is 12 + 30?")
        self.assertEqual((done.returncode, done.stdout), (0, "3 + 4 = 7\n"))

    def test_the_past_counts_until_it_is_reset(self):
        told = chat(FACTS, ASKED).stdout
        self.assertTrue(told.endswith("\nRosa lives in Bern.\n"), told)
        forgotten = chat(FACTS, "/reset", ASKED).stdout
        self.assertEqual(forgotten, chat(FACTS).stdout + chat(ASKED).stdout)
        self.assertNotEqual(forgotten, told)

    def test_the_system_text_counts_and_outlives_a_reset(self):
        flags = [*FLAGS, "--system", FACTS]
        question = ASKED
        once = chat(question, flags=flags).stdout
        self.assertNotEqual(once, chat(question).stdout)
        self.assertEqual(chat(question, "/reset", question, flags=flags).stdout, once * 2)

    def test_bytes_that_are_no_text_do_not_end_it(self):
        done = subprocess.run(
            [TANDEM, "chat", MODEL, *FLAGS, "--max-tokens", "8"],
            input=b"\xff\xfe\n/reset\nWhat is 3 + 4?\n",
            capture_output=True,
            timeout=120,
        )
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertTrue(done.stdout.endswith(b"3 + 4 = 7\n"))

    def test_a_line_that_does_not_fit_is_refused_and_forgotten(self):
        flags = [*FLAGS, "--max-model-len", "64"]
        done = chat("word " * 100, "What is 3 + 4?", flags=flags)
        self.assertEqual((done.returncode, done.stdout), (0, "3 + 4 = 7\n"))
        self.assertIn("a prompt may have 63 at most", done.stderr)

    def test_max_tokens_bounds_an_answer(self):
        short = chat("What is 12 + 30?", flags=[*FLAGS, "--max-tokens", "3"]).stdout
        self.assertTrue("12 + 30 = 42\n".startswith(short.rstrip("\n")))
        self.assertLess(len(short), len("12 + 30 = 42\n"))

    def test_ctrl_c_cuts_an_answer_and_leaves_at_the_prompt(self):
        process = subprocess.Popen(
            # Any token is as likely as any other, so few are special ones without text.
            [TANDEM, "chat", self.endless_model(), "--temperature", "100", "--top-k", "0",
             "--top-p", "1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        process.stdin.write(b"Tell me a story.\n")
        process.stdin.flush()
        process.stdout.read(1)  # the answer runs
        process.send_signal(signal.SIGINT)
        process.stdin.write(b"/exit\n")
        process.stdin.close()
        rest = process.stdout.read()
        self.assertEqual(process.wait(timeout=60), 0)  # it went on to the next line
        self.assertLess(len(rest), 4000)  # uncut it fills the context: 8,000 tokens

    def test_ctrl_c_at_the_prompt_leaves(self):
        process = subprocess.Popen(
            [TANDEM, "chat", MODEL, *FLAGS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.kill)
        process.stdin.write(b"What is 3 + 4?\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), b"3 + 4 = 7\n")
        # A signal that comes while the answer is being put away is not for the prompt.
        for _ in range(100):
            process.send_signal(signal.SIGINT)
            try:
                return self.assertEqual(process.wait(timeout=0.1), 0)
            except subprocess.TimeoutExpired:
                continue
        self.fail("the prompt does not leave")


if __name__ == "__main__":
    unittest.main()
