"""Random checkpoints: the rule of src/model/random_source.cc once more, in numpy, and the same
tensors in other types."""

import json
import pathlib
import zlib

import numpy

MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15
DTYPE_NAMES = {"<f8": "F64", "<f4": "F32", "<f2": "F16", "<i8": "I64", "<i4": "I32", "<u2": "U16"}


def mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def mix_all(x: numpy.ndarray) -> numpy.ndarray:
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def key_of(seed: int, name: str) -> int:
    key = mix(seed)
    for byte in name.encode():
        key = mix((key + byte + 1) & MASK)
    return key


def to_bf16(values: numpy.ndarray) -> numpy.ndarray:
    """Bits of the nearest bf16, ties to even. No NaN occurs."""
    bits = values.view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def center_and_deviation(shape: tuple[int, ...]) -> tuple[numpy.float32, numpy.float32]:
    if len(shape) == 1:
        return numpy.float32(1), numpy.float32(0.1)
    return numpy.float32(0), numpy.float32(1) / numpy.sqrt(numpy.float32(shape[-1]))


def bf16_bits(seed: int, name: str, shape: tuple[int, ...]) -> numpy.ndarray:
    """What RandomSource makes of this tensor."""
    count = int(numpy.prod(shape))
    draws = (count + 3) // 4
    with numpy.errstate(over="ignore"):
        counters = numpy.uint64(key_of(seed, name)) + numpy.uint64(STEP) * numpy.arange(
            draws, dtype=numpy.uint64)
        words = mix_all(counters).astype("<u8").view("<u2")[:count]
    center, deviation = center_and_deviation(shape)
    unit = deviation * numpy.sqrt(numpy.float32(3)) / numpy.float32(32768)
    values = center + (words.astype(numpy.float32) - numpy.float32(32767.5)) * unit
    return to_bf16(values.astype(numpy.float32)).reshape(shape)


def full_precision(seed: int, name: str, shape: tuple[int, ...], stored: str) -> numpy.ndarray:
    """Values of the same size that use all bits of f16 or f32."""
    generator = numpy.random.default_rng([seed, zlib.crc32(name.encode())])
    center, deviation = center_and_deviation(shape)
    values = center + deviation * generator.standard_normal(shape)
    return values.astype({"f16": numpy.float16, "f32": numpy.float32}[stored])


def tensor_shapes(config) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a checkpoint, from a config as transformers has read it."""
    hidden, heads = config.hidden_size, config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or hidden // heads
    q_rows, kv_rows = heads * head_dim, config.num_key_value_heads * head_dim
    shapes = {"model.embed_tokens.weight": (config.vocab_size, hidden)}

    def add_mlp(prefix: str, width: int) -> None:
        shapes[prefix + "gate_proj.weight"] = (width, hidden)
        shapes[prefix + "up_proj.weight"] = (width, hidden)
        shapes[prefix + "down_proj.weight"] = (hidden, width)

    for i in range(config.num_hidden_layers):
        prefix = f"model.layers.{i}."
        shapes[prefix + "input_layernorm.weight"] = (hidden,)
        shapes[prefix + "self_attn.q_proj.weight"] = (q_rows, hidden)
        shapes[prefix + "self_attn.k_proj.weight"] = (kv_rows, hidden)
        shapes[prefix + "self_attn.v_proj.weight"] = (kv_rows, hidden)
        shapes[prefix + "self_attn.o_proj.weight"] = (hidden, q_rows)
        shapes[prefix + "self_attn.q_norm.weight"] = (head_dim,)
        shapes[prefix + "self_attn.k_norm.weight"] = (head_dim,)
        shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
        is_moe = (config.model_type == "qwen3_moe" and i not in config.mlp_only_layers
                  and (i + 1) % config.decoder_sparse_step == 0)
        if not is_moe:
            add_mlp(prefix + "mlp.", config.intermediate_size)
            continue
        shapes[prefix + "mlp.gate.weight"] = (config.num_experts, hidden)
        for e in range(config.num_experts):
            add_mlp(f"{prefix}mlp.experts.{e}.", config.moe_intermediate_size)
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def save_tensors(path: pathlib.Path, tensors: dict[str, numpy.ndarray],
                 metadata: dict[str, str] | None = None, dtype: str | None = None) -> None:
    """A safetensors file with the same bytes every time. The library orders metadata at random and
    numpy knows no bf16: with `dtype` the tensors are the bits of that type."""
    header, end = {"__metadata__": metadata or {}}, 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": dtype or DTYPE_NAMES[tensor.dtype.str],
                        "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.tobytes())


def fuse_experts(tensors: dict[str, numpy.ndarray], config) -> dict[str, numpy.ndarray]:
    """The same weights with all experts of a layer in two tensors, gate rows before up rows."""
    fused = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
    for i in range(config.num_hidden_layers):
        prefix = f"model.layers.{i}.mlp.experts."
        parts = {kind: [tensors[f"{prefix}{e}.{kind}_proj.weight"]
                        for e in range(config.num_experts)]
                 for kind in ("gate", "up", "down") if prefix + "0.gate_proj.weight" in tensors}
        if parts:
            fused[prefix + "gate_up_proj"] = numpy.stack(
                [numpy.concatenate(pair) for pair in zip(parts["gate"], parts["up"])])
            fused[prefix + "down_proj"] = numpy.stack(parts["down"])
    return fused


def write_weights(folder: pathlib.Path, case, config, fused: bool = False) -> None:
    """Writes the weights of a case of _parity_cases.py beside its config.json; fused: bf16 only."""
    metadata = {"format": "pt", "made_by": "./x golden parity"}
    shapes = tensor_shapes(config)
    if case.stored == "bf16":
        tensors = {name: bf16_bits(case.seed, name, shape) for name, shape in shapes.items()}
        if fused:
            tensors = fuse_experts(tensors, config)
        save_tensors(folder / "model.safetensors", tensors, metadata, "BF16")
        return
    tensors = {name: full_precision(case.seed, name, shape, case.stored)
               for name, shape in shapes.items()}
    if case.shards == 1:
        save_tensors(folder / "model.safetensors", tensors, metadata)
        return
    total = sum(tensor.nbytes for tensor in tensors.values())
    shards: list[dict] = [{} for _ in range(case.shards)]
    seen = 0
    for name, tensor in tensors.items():
        shards[min(seen * case.shards // total, case.shards - 1)][name] = tensor
        seen += tensor.nbytes
    places = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{case.shards:05}.safetensors"
        save_tensors(folder / file, shard, metadata)
        places |= {name: file for name in shard}
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
