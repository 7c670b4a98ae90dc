"""Goal: `tandem inspect` tells config, tensors and memory of a model; what it says will not fit is
refused by every verb before loading, and what it recommends fits.

Method: models/tiny-moe against its own safetensors headers and known sizes; folders with a config
alone and with a tensor missing; a KV cache larger than any machine; the memory that a server really
takes.
"""

import json
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

from program import MODEL, ROOT, TANDEM, run

HUGE = ["--kv-cache-tokens", 2**31]  # times 4 KiB of tiny-moe: 8 TiB


def inspect(*arguments):
    done = run("inspect", *arguments, "--json")
    return done, json.loads(done.stdout)


def headers(folder):
    """Name -> entry of every tensor of a folder, by the definition of the format."""
    tensors = {}
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            for name, entry in json.loads(file.read(length)).items():
                if name != "__metadata__":
                    tensors[name] = entry | {"file": path.name}
    return tensors


class Inspect(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_tells_the_config(self):
        _, report = inspect(MODEL)
        config = report["config"]
        self.assertEqual(config["family"], "qwen3_moe")
        self.assertEqual((config["layers"], config["experts"], config["heads"]), (4, 16, 8))
        self.assertEqual(config["rms_norm_eps"], 1e-6)
        self.assertEqual(config["rope"], {"theta": 10000, "rotary_dim": 64, "scaling": "none"})

    def test_tells_yarn(self):
        config = json.loads((MODEL / "config.json").read_text())
        config["rope_scaling"] = {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048
        }
        (self.folder / "config.json").write_text(json.dumps(config))
        rope = inspect(self.folder)[1]["config"]["rope"]
        self.assertEqual((rope["scaling"], rope["factor"]), ("yarn", 4))
        self.assertEqual(rope["original_max_position"], 2048)

    def test_lists_every_tensor_as_the_headers_say(self):
        done, report = inspect(MODEL, "--tensors")
        self.assertEqual(done.returncode, 0)
        expected = headers(MODEL)
        self.assertEqual({t["name"] for t in report["tensors"]}, set(expected))
        for tensor in report["tensors"]:
            entry = expected[tensor["name"]]
            start, end = entry["data_offsets"]
            self.assertEqual(tensor["shape"], entry["shape"])
            self.assertEqual(tensor["dtype"], entry["dtype"])
            self.assertEqual(tensor["bytes"], end - start)
            self.assertEqual(tensor["file"], entry["file"])
            self.assertEqual(tensor["part"] == "ignored", tensor["name"].startswith("mtp."))
        for part in report["parts"]:
            listed = [t for t in report["tensors"] if t["part"] == part["part"]]
            if part["part"] != "in all":
                self.assertEqual(part["tensors"], len(listed))
                self.assertEqual(part["bytes"], sum(t["bytes"] for t in listed))

    def test_memory_follows_the_flags(self):
        # Per token: K and V of 4 layers, 4 heads of 64, two bytes each.
        memory = inspect(MODEL, "--kv-cache-tokens", 16000, "--max-model-len", 4000)[1]["memory"]
        self.assertEqual(memory["kv_bytes"], 16000 * 2 * 4 * 4 * 64 * 2)
        self.assertEqual(memory["weights"]["rotary table"], 4000 * 64 * 4)
        self.assertEqual(memory["weights"]["experts"], 4 * 16 * 3 * 256 * 128 * 2)
        self.assertEqual(memory["logits_bytes"], 32 * 4096 * 4)
        wide = inspect(MODEL, "--kv-cache-tokens", 16000, "--max-model-len", 4000,
                       "--dtype", "f32", "--max-num-seqs", 3)[1]["memory"]
        self.assertEqual(wide["kv_bytes"], 2 * memory["kv_bytes"])
        self.assertEqual(wide["weights"]["experts"], 2 * memory["weights"]["experts"])
        self.assertEqual(wide["weights"]["norms"], memory["weights"]["norms"])  # f32 in both
        self.assertEqual(wide["logits_bytes"], 3 * 4096 * 4)

    def test_text_and_json_tell_the_same(self):
        text = run("inspect", MODEL, "--tensors").stdout
        for name in headers(MODEL):
            self.assertIn(f"  {name}  ", text)
        for word in ("experts", "kv cache", "needed", "available", "ignored", "MemAvailable"):
            self.assertIn(word, text)

    def test_a_config_alone_is_enough_to_plan_with(self):
        done, report = inspect(ROOT / "models/bench-moe", "--max-model-len", 4096)
        self.assertEqual(done.returncode, 0)
        self.assertFalse(report["has_weights"])
        self.assertEqual(report["parts"][3]["bytes"], 4 * 32 * 3 * 2048 * 768 * 2)

    def test_a_missing_tensor_is_named_behind_the_report(self):
        shutil.copy(MODEL / "config.json", self.folder)
        header = json.dumps(
            {"model.norm.weight": {"dtype": "F32", "shape": [256], "data_offsets": [0, 1024]}}
        ).encode()
        content = struct.pack("<Q", len(header)) + header + bytes(1024)
        (self.folder / "model.safetensors").write_bytes(content)
        done, report = inspect(self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(report["parts"][0]["tensors"], 1)
        self.assertIn("missing tensors (230): model.embed_tokens.weight", done.stderr)

    def test_a_folder_that_is_no_model_is_one_error(self):
        done = run("inspect", self.folder)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("config.json", done.stderr)

    def test_what_does_not_fit_ends_with_a_fix_that_fits(self):
        done, report = inspect(MODEL, *HUGE)
        self.assertEqual(done.returncode, 1)
        self.assertFalse(report["memory"]["fits"])
        self.assertEqual(done.stderr.count("\n"), 1)
        fix = re.search(r"It fits with (.*)\.", done.stderr)[1]
        self.assertEqual(inspect(MODEL, *fix.split())[0].returncode, 0)

    def test_every_verb_refuses_it_before_loading(self):
        # A folder without weights: who tried to load would say that they are absent.
        for path in MODEL.iterdir():
            if path.suffix != ".safetensors" and "index" not in path.name:
                shutil.copy(path, self.folder)
        config = json.loads((MODEL / "config.json").read_text())
        config |= {"hidden_size": 16384, "num_hidden_layers": 200, "moe_intermediate_size": 16384,
                   "num_experts": 256}
        (self.folder / "config.json").write_text(json.dumps(config))
        tokens = self.folder / "tokens.json"
        tokens.write_text('{"prompts": [[1]]}')
        verbs = {
            "serve": ["--port", 0],
            "generate": ["a"],
            "chat": [],
            "eval": ["--file", tokens],
            "logits": ["--tokens", tokens, "--out", self.folder / "out"],
        }
        for verb, arguments in verbs.items():
            with self.subTest(verb):
                done = run(verb, self.folder, *arguments)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                for word in ("do not fit in memory", "experts", "needed", "available", "weights"):
                    self.assertIn(word, done.stderr)
        done = run("bench", "engine", self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn("do not fit in memory", done.stderr)

    def test_a_server_takes_no_more_than_was_said(self):
        flags = ["--kv-cache-tokens", "40000", "--dtype", "f32"]
        said = inspect(MODEL, *flags)[1]["memory"]["needed_bytes"]
        process = subprocess.Popen(
            [TANDEM, "serve", MODEL, "--port", "0", *flags], stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if "serving at" in line:
                break
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertLess(peak, said)


class Verbs(unittest.TestCase):
    def test_an_unknown_verb_is_named_and_none_lists_all(self):
        unknown = run("serv")
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("serv", unknown.stderr)
        none = run()
        self.assertEqual(none.returncode, 2)
        self.assertIn("generate", none.stderr)


class Version(unittest.TestCase):
    def test_verb_and_flag_print_the_same(self):
        verb, flag = run("version"), run("--version")
        self.assertRegex(verb.stdout, r"^\d+\.\d+\.\d+\n$")
        self.assertEqual((verb.stdout, verb.returncode), (flag.stdout, flag.returncode))


if __name__ == "__main__":
    unittest.main()
