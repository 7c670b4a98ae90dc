"""Goal: `tandem chat` keeps a conversation, and its commands, limits and Ctrl-C work.

Method: lines through a pipe, greedy on models/tiny-moe, against `tandem generate` and each other;
an interrupt signal while a long answer runs, and one at the prompt.
"""

import signal
import subprocess
import unittest

from program import MODEL, TANDEM, run

FLAGS = ["--no-thinking", "--temperature", "0"]
FACTS = "Remember this. David lives in Ottawa. Rosa lives in Bern. Iris lives in Oslo."
ASKED = "Where does Rosa live?"


def chat(*lines, flags=FLAGS):
    return run("chat", MODEL, *flags, text="".join(line + "\n" for line in lines))


class Chat(unittest.TestCase):
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
        # At a high temperature tiny-moe babbles for thousands of tokens.
        process = subprocess.Popen(
            [TANDEM, "chat", MODEL, "--temperature", "100", "--seed", "1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        process.stdin.write(b"Tell me a story.\n")
        process.stdin.flush()
        process.stdout.read(1)  # the answer runs
        process.send_signal(signal.SIGINT)
        process.stdin.write(b"/reset\nWhat is 3 + 4?\n")
        process.stdin.close()
        rest = process.stdout.read()
        self.assertEqual(process.wait(timeout=60), 0)  # it went on to the end of input
        self.assertGreaterEqual(rest.count(b"\n"), 2)
        # Uncut, the answer fills the context: 8,000 random tokens of 4 bytes.
        self.assertLess(len(rest), 8000)

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
