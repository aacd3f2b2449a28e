"""What we say of an engine's memory against what the engine itself wrote, read a second time.

The second reading shares nothing with the product's: words of the log split at blanks, labels of
the metrics split at commas, tensor sizes from the checkpoint's header.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from math import prod
from pathlib import Path

from advisor.llm import ModelShape, dtype_bytes
from advisor.roofline.memory import KvCapacity, kv_capacity
from advisor.serving import EngineFacts
from probes.vllm.checkpoint import model_shape
from probes.vllm.engine import RunningEngine
from tests.bench.figures import Figure

ROW = "memory_figures_error"
GIB = 1 << 30
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I8": 1, "U8": 1, "F8_E4M3": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One figure of ours and the engine's; `step` is what the engine's form rounds to."""

    name: str
    ours: float | None
    theirs: float
    step: float = 0.0

    @property
    def error(self) -> float:
        """Relative error beyond the rounding; a figure that we lack is wholly wrong."""
        if self.ours is None:
            return 1.0
        return max(0.0, abs(self.ours - self.theirs) - self.step / 2) / self.theirs


def memory_figures(engine: RunningEngine, model: Path) -> list[Figure]:
    """The largest error over all figures of one running engine of the CPU build."""
    shape = model_shape(model)
    if shape is None:
        return [_row(None, f"the model in {model.name} is not understood")]
    labels = cache_labels(metrics_text(engine))
    pairs = [
        *facts_against_log(engine.facts, engine.read_log()),
        *facts_against_metrics(engine.facts, labels),
        *model_against_engine(shape, engine.facts, labels),
        *weights_against_files(shape, model, engine.read_log()),
    ]
    worst = max(pairs, key=lambda pair: pair.error)
    shown = ", ".join(f"{pair.name} {pair.error:.2%}" for pair in pairs)
    return [_row(worst.error, f"{len(pairs)} figures: {shown}")]


def facts_against_log(facts: EngineFacts, log: str) -> Iterator[Pair]:
    """Tokens, concurrency and KV bytes as the log's own words give them."""
    words = line_with(log, "KV cache size:").split("KV cache size:")[1].split()
    tokens, concurrency = words[0].replace(",", ""), words[-1].removesuffix("x")
    yield Pair(name="tokens in the log", ours=facts.kv_cache_tokens, theirs=float(tokens))
    yield Pair(
        name="concurrency in the log",
        ours=facts.max_concurrency,
        theirs=float(concurrency),
        step=0.01,
    )
    stated = line_with(log, " set (").split(" set (")[1].split("/")[0]
    yield Pair(
        name="KV bytes in the log",
        ours=facts.kv_cache_bytes,
        theirs=float(stated) * GIB,
        step=0.01 * GIB,
    )


def facts_against_metrics(facts: EngineFacts, labels: dict[str, str]) -> Iterator[Pair]:
    """Blocks, their size and tokens as ``vllm:cache_config_info`` labels them."""
    for name, ours in (
        ("num_gpu_blocks", facts.num_blocks),
        ("block_size", facts.block_size),
        ("kv_cache_size_tokens", facts.kv_cache_tokens),
        ("kv_cache_max_concurrency", facts.max_concurrency),
        ("kv_cache_memory_bytes", facts.kv_cache_bytes),
    ):
        yield Pair(name=f"{name} in the metrics", ours=ours, theirs=float(labels[name]))


def model_against_engine(
    shape: ModelShape, facts: EngineFacts, labels: dict[str, str]
) -> Iterator[Pair]:
    """What the memory model predicts from shape, the served type and KV bytes."""
    predicted: KvCapacity = kv_capacity(
        available_bytes=int(float(labels["kv_cache_memory_bytes"])),
        bytes_per_token=shape.kv_bytes_per_token(dtype_bytes(facts.dtype or shape.dtype)),
        block_size=int(labels["block_size"]),
    )
    yield Pair(
        name="predicted blocks",
        ours=predicted.num_blocks,
        theirs=float(labels["num_gpu_blocks"]),
    )
    yield Pair(
        name="predicted tokens",
        ours=predicted.tokens,
        theirs=float(labels["kv_cache_size_tokens"]),
    )
    yield Pair(
        name="predicted concurrency",
        ours=predicted.max_concurrency(facts.max_model_len or 1),
        theirs=float(labels["kv_cache_max_concurrency"]),
    )


def weights_against_files(shape: ModelShape, model: Path, log: str) -> Iterator[Pair]:
    """Predicted weights against the tensors on disk, and those against the log's rounded size."""
    stored = sum(tensor_bytes(file) for file in model.glob("*.safetensors"))
    yield Pair(name="predicted weights", ours=shape.weight_bytes(), theirs=stored)
    stated = line_with(log, "Checkpoint size:").split("Checkpoint size:")[1].split()[0]
    yield Pair(
        name="checkpoint in the log", ours=stored, theirs=float(stated) * GIB, step=0.01 * GIB
    )


def tensor_bytes(file: Path) -> int:
    """Bytes of all tensors by the header of a safetensors file: its length, then JSON."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(length))
    tensors = [entry for name, entry in header.items() if name != "__metadata__"]
    return sum(prod(entry["shape"]) * _BYTES[entry["dtype"]] for entry in tensors)


def line_with(log: str, words: str) -> str:
    """The first line that holds them."""
    return next(line for line in log.splitlines() if words in line)


def metrics_text(engine: RunningEngine) -> str:
    """The text of the engine's metrics, asked for once more."""
    connection = HTTPConnection(engine.host, engine.port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def cache_labels(metrics: str) -> dict[str, str]:
    """Labels of the line that describes the cache."""
    line = line_with(metrics, "vllm:cache_config_info{")
    inside = line.split("{", 1)[1].rsplit("}", 1)[0]
    pairs = (part.split("=", 1) for part in inside.split('",') if "=" in part)
    return {name.strip(): value.strip('"') for name, value in pairs}


def _row(value: float | None, detail: str) -> Figure:
    return Figure(name=ROW, value=value, unit="fraction", better="lower", detail=detail)
