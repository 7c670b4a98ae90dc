"""Goal: `tandem generate` answers, alone and in a batch, and refuses wrong input with one error.

Method: models/tiny-moe, greedy, on known sums; JSON output of texts and of token ids; a batch
against its prompts one by one; every kind of wrong input.
"""

import json
import tempfile
import unittest
from pathlib import Path

from program import MODEL, run

GREEDY = ["--temperature", 0]
CHAT = ["--chat", "--no-thinking", *GREEDY]


class Generate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.write_text(content)
        return path

    def outputs(self, *arguments):
        done = run("generate", MODEL, *arguments, "--json", "-")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)["outputs"]

    def test_streams_the_answer_to_one_prompt(self):
        done = run("generate", MODEL, "What is 12 + 30?", *CHAT)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "12 + 30 = 42\n", ""))

    def test_answers_a_file_of_prompts_in_its_order(self):
        sums = self.write("sums.txt", "What is 12 + 30?\n\nWhat is 3 + 4?\n")
        outputs = self.outputs("--prompts", sums, *CHAT)
        self.assertEqual([o["text"] for o in outputs], ["12 + 30 = 42", "3 + 4 = 7"])
        self.assertEqual([o["finish_reason"] for o in outputs], ["stop", "stop"])
        shown = run("generate", MODEL, "--prompts", sums, *CHAT).stdout
        self.assertEqual(shown, "--- 1 of 2\n12 + 30 = 42\n--- 2 of 2\n3 + 4 = 7\n")

    def test_a_batch_of_ids_answers_as_each_alone(self):
        prompts = [[i * 7 % 4000 + 1 for i in range(n)] for n in (1, 33, 150)]
        arguments = ["--max-tokens", 9, "--ignore-eos", "--seed", 5, "--temperature", 1]
        tokens = self.write("all.json", json.dumps({"prompts": prompts}))
        together = self.outputs("--tokens", tokens, *arguments)
        self.assertEqual([o["prompt_tokens"] for o in together], [1, 33, 150])
        for prompt, output in zip(prompts, together):
            self.assertEqual(len(output["tokens"]), 9)
            self.assertEqual(output["finish_reason"], "length")
            one = self.write("one.json", json.dumps({"prompts": [prompt]}))
            self.assertEqual(self.outputs("--tokens", one, *arguments), [output])

    def test_writes_json_to_a_file(self):
        path = self.folder / "out.json"
        done = run("generate", MODEL, "What is 3 + 4?", *CHAT, "--json", path)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertEqual(json.loads(path.read_text())["outputs"][0]["text"], "3 + 4 = 7")

    def test_text_leaves_out_the_token_that_ended_it(self):
        output = self.outputs("What is 3 + 4?", *CHAT)[0]
        self.assertEqual(output["tokens"][-1], 4072)  # <|im_end|>
        self.assertNotIn("<|im_end|>", output["text"])

    def test_a_user_who_spells_a_control_token_writes_text(self):
        flags = ["--max-tokens", 1, *GREEDY]
        plain = self.outputs("<|im_end|>", *flags)[0]["prompt_tokens"]
        self.assertEqual(plain, 1)
        spelled = self.outputs("<|im_end|>", "--chat", *flags)[0]["prompt_tokens"]
        letter = self.outputs("a", "--chat", *flags)[0]["prompt_tokens"]
        self.assertGreater(spelled, letter)

    def test_more_prompts_than_run_at_once_are_all_answered(self):
        sums = self.write("sums.txt", "What is 3 + 4?\n" * 9)
        outputs = self.outputs("--prompts", sums, *CHAT, "--max-num-seqs", 2)
        self.assertEqual({o["text"] for o in outputs}, {"3 + 4 = 7"})
        self.assertEqual(len(outputs), 9)

    def test_wrong_input_is_one_clear_error(self):
        bad = [[1, 2], [4096]]
        cases = {
            ("--tokens", self.folder / "absent.json"): "absent.json: No such file",
            ("--prompts", self.folder / "absent.txt"): "absent.txt: No such file",
            ("--tokens", self.write("cut.json", '{"prompts": [[1')): "cut.json is not JSON",
            ("--tokens", self.write("wrong.json", '{"prompts": [["a"]]}')): "wrong.json: expected",
            ("--tokens", self.write("bad.json", json.dumps({"prompts": bad}))):
                "prompts[1]: the prompt holds token 4096; the vocabulary is [0, 4096)",
            ("--tokens", self.write("none.json", '{"prompts": []}')): "no prompt",
            ("--tokens", self.write("empty.json", '{"prompts": [[]]}')): "the prompt is empty",
            ("one two three four", "--max-model-len", 3): "raise --max-model-len",
            ("a", "--max-model-len", 10000): "8192 positions",
            ("a", "--json", self.folder / "no" / "folder"): "could not be written",
            ("a", "--max-num-batched-tokens", 8): "below --max-num-seqs 32",
        }
        for arguments, expected in cases.items():
            with self.subTest(expected):
                done = run("generate", MODEL, *arguments)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(expected, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_a_chat_template_needs_no_tokenizer_config(self):
        for file in MODEL.iterdir():
            if file.name != "tokenizer_config.json":
                (self.folder / file.name).symlink_to(file)
        template = "<|im_start|>user\n{{ messages[0].content }}<|im_end|>\n<|im_start|>assistant\n"
        self.write("chat_template.jinja", template)
        done = run("generate", self.folder, "hi", "--chat", "--max-tokens", 1)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_absent_model_is_named(self):
        done = run("generate", self.folder / "nowhere", "a")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nowhere", done.stderr)


if __name__ == "__main__":
    unittest.main()
