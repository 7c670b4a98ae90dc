"""Writes src/model/rope_golden.inc: rotary frequencies and angles as transformers computes them.

Run from the repository root, in an environment with torch and transformers:
    python tools/golden/rope_golden.py > src/model/rope_golden.inc
The rotary module of Qwen3-MoE is asked itself, so the numbers are what a checkpoint is run with.
"""

import json
import logging

import torch
import transformers
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeRotaryEmbedding

logging.disable(logging.WARNING)

POSITIONS = [0, 1, 7, 999, 8191, 131071]
CASES = [
    ("default", 128, {"rope_type": "default", "rope_theta": 1e6}),
    ("default_small", 64, {"rope_type": "default", "rope_theta": 1e4}),
    ("linear", 128, {"rope_type": "linear", "rope_theta": 1e7, "factor": 2.5}),
    ("yarn_card", 128, {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
                        "original_max_position_embeddings": 32768}),
    ("yarn_betas", 64, {"rope_type": "yarn", "rope_theta": 5e6, "factor": 8.0,
                        "original_max_position_embeddings": 4096, "beta_fast": 16.0,
                        "beta_slow": 2.0, "truncate": False, "attention_factor": 0.75}),
    ("yarn_mscale", 64, {"rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0,
                         "original_max_position_embeddings": 4096, "mscale": 1.0,
                         "mscale_all_dim": 0.707}),
    ("yarn_null_factor", 64, {"rope_type": "yarn", "rope_theta": 1e4, "factor": None,
                              "original_max_position_embeddings": 8192}),
    # The ends of the ramp lie outside the head and are clamped.
    ("yarn_low_clamped", 64, {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
                              "original_max_position_embeddings": 64}),
    ("yarn_high_clamped", 64, {"rope_type": "yarn", "rope_theta": 50.0, "factor": 4.0,
                               "original_max_position_embeddings": 131072,
                               "beta_fast": 2000.0}),
]


def floats(values):
    lines, line = [], "      "
    for value in values:
        word = " " + (float(value).hex() if value != int(value) else f"{int(value)}.0") + "f,"
        if len(line) + len(word) > 98:
            lines.append(line)
            line = "      "
        line += word
    return "\n".join(lines + [line])


def main():
    print(f"// Made by tools/golden/rope_golden.py with transformers {transformers.__version__}.")
    print("const GoldenRope kGoldenRopes[] = {")
    for name, head_dim, rope in CASES:
        config = transformers.Qwen3MoeConfig(
            head_dim=head_dim, max_position_embeddings=40960, rope_parameters=dict(rope))
        module = Qwen3MoeRotaryEmbedding(config)
        cos, sin = module(torch.zeros(1), torch.tensor([POSITIONS]))
        pairs = head_dim // 2
        picked = [0, 1, pairs // 4, pairs // 2, pairs - 1]
        samples = [table[0, p, i] for p in range(len(POSITIONS)) for table in (cos, sin)
                   for i in picked]
        text = json.dumps({"model_type": "qwen3_moe", "head_dim": head_dim,
                           "max_position_embeddings": 40960, "rope_parameters": rope})
        print("    {")
        print(f'        "{name}",')
        print(f"        R\"({text})\",")
        print("        {\n" + floats(module.inv_freq) + "\n        },")
        print("        {\n" + floats(samples) + "\n        },")
        print("    },")
    print("};")


main()
