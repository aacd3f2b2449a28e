"""What the replays read: recorded runs, the traffic they served, kernel times of their devices.

Everything but the recorded times is input: the settings that the runs were started with, arrivals,
lengths, shared prefixes, and kernel times that LLMServingSim's profiler took on the same machines.
"""

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.llm import ModelShape
from advisor.roofline.kernels import AttentionRows, ExpertRows, KernelRow
from advisor.simulator import Load
from tests.fakes.published_models import LLAMA_31_8B, QWEN3_30B_A3B, QWEN3_32B

Floats: TypeAlias = NDArray[np.float64]

REQUESTS = "trace_llmservingsim_vllm_requests.csv"
SERIES = "trace_llmservingsim_vllm_timeseries.csv"
ATTENTION = "ops_llmservingsim_attention.csv.gz"
KERNELS = "ops_llmservingsim_dense_per_sequence_moe.csv.gz"
BLOCK_SIZE = 16
MICRO = 1e-6


MODELS: Mapping[str, ModelShape] = {
    "meta-llama/Llama-3.1-8B": LLAMA_31_8B,
    "Qwen/Qwen3-32B": QWEN3_32B,
    "Qwen/Qwen3-30B-A3B-Instruct-2507": replace(QWEN3_30B_A3B, max_position_embeddings=262144),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One recorded run and how it was started; `num_blocks` where the engine reported it.

    `multiprocessors` are the device's. Ranks of `data_parallel` share the experts.
    """

    name: str
    gpu: str
    card: str
    model: str
    multiprocessors: int
    max_num_seqs: int
    max_model_len: int
    traffic: str
    tensor_parallel: int = 1
    data_parallel: int = 1
    num_blocks: int | None = None
    max_num_batched_tokens: int = 2048

    @property
    def shape(self) -> ModelShape:
        return MODELS[self.model]


RUNS: tuple[Run, ...] = (
    Run(
        name="RTX4090/Llama-3.1-8B",
        gpu="RTX4090",
        card="rtx-4090",
        model="meta-llama/Llama-3.1-8B",
        traffic="llama-3.1-8b",
        multiprocessors=128,
        max_num_seqs=256,
        max_model_len=32768,
        num_blocks=2588,
    ),
    Run(
        name="RTXPRO6000/Llama-3.1-8B",
        gpu="RTXPRO6000",
        card="rtx-pro-6000",
        model="meta-llama/Llama-3.1-8B",
        traffic="llama-3.1-8b",
        multiprocessors=188,
        max_num_seqs=128,
        max_model_len=131072,
    ),
    Run(
        name="RTXPRO6000/Qwen3-32B",
        gpu="RTXPRO6000",
        card="rtx-pro-6000",
        model="Qwen/Qwen3-32B",
        traffic="qwen3-32b",
        multiprocessors=188,
        max_num_seqs=128,
        max_model_len=40960,
        tensor_parallel=2,
    ),
    Run(
        name="RTXPRO6000/Qwen3-30B-A3B-Instruct-2507",
        gpu="RTXPRO6000",
        card="rtx-pro-6000",
        model="Qwen/Qwen3-30B-A3B-Instruct-2507",
        traffic="qwen3-32b",
        multiprocessors=188,
        max_num_seqs=128,
        max_model_len=262144,
        data_parallel=2,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Kernel times of one model on one device; `experts` where it has any."""

    kernels: tuple[KernelRow, ...]
    attention: AttentionRows
    experts: ExpertRows | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a run recorded: per request, and the cache's use over time in percent."""

    request_ids: tuple[str, ...]
    arrival_s: Floats
    first_token_s: Floats
    last_token_s: Floats
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    tick_s: Floats = field(default_factory=lambda: np.zeros(0))
    kv_percent: Floats = field(default_factory=lambda: np.zeros(0))


def _lines(path: Path) -> Iterator[dict[str, str]]:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as packed:
            yield from csv.DictReader(packed)
    else:
        with path.open(encoding="utf-8") as file:
            yield from csv.DictReader(file)


def recorded(measurements: Path, run: Run) -> Recorded:
    """The recorded run, requests by arrival."""
    lines = [line for line in _lines(measurements / REQUESTS) if line["run"] == run.name]
    lines.sort(key=lambda line: float(line["arrival_s"]))
    ticks = [line for line in _lines(measurements / SERIES) if line["run"] == run.name]

    def column(name: str) -> Floats:
        return np.array([float(line[name]) for line in lines])

    return Recorded(
        request_ids=tuple(line["request_id"] for line in lines),
        arrival_s=column("arrival_s"),
        first_token_s=column("first_token_s"),
        last_token_s=column("last_token_s"),
        input_tokens=column("input_toks").astype(np.int64),
        output_tokens=column("output_toks").astype(np.int64),
        tick_s=np.array([float(tick["t"]) for tick in ticks]),
        kv_percent=np.array([float(tick["kv_cache_pct"]) for tick in ticks]),
    )


def block_ids(measurements: Path, run: Run) -> Mapping[str, list[int]]:
    """Chained identifiers of the whole blocks of every prompt."""
    folder = measurements.parent / "traffic" / "sharegpt_300"
    path = folder / f"sharegpt_300_{run.traffic}_blk{BLOCK_SIZE}.jsonl"
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return {row["request_id"]: row["hash_ids"] for row in rows}


def load(measured: Recorded, blocks: Mapping[str, list[int]], chosen: NDArray[np.int64]) -> Load:
    """The chosen requests as the simulator takes them: when they arrived, not what they took."""
    shared = [blocks[measured.request_ids[i]] for i in chosen]
    ends = np.cumsum([0, *(len(ids) for ids in shared)])
    return Load(
        arrival_s=measured.arrival_s[chosen],
        prompt_tokens=measured.input_tokens[chosen],
        output_tokens=measured.output_tokens[chosen],
        block_ids=np.array([number for ids in shared for number in ids], dtype=np.int64),
        block_starts=ends.astype(np.int64),
    )


def profiles(measurements: Path) -> Mapping[tuple[str, str], Profile]:
    """Kernel times by (gpu, model)."""
    attention: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for line in _lines(measurements / ATTENTION):
        row = tuple(
            float(line[name])
            for name in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
        )
        attention.setdefault((line["gpu"], line["model"]), []).append(row)
    kernels: dict[tuple[str, str], list[KernelRow]] = {}
    experts: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for line in _lines(measurements / KERNELS):
        key, seconds = (line["gpu"], line["model"]), float(line["time_us"]) * MICRO
        if line["table"] == "moe":
            touched = float(line["activated_experts"])
            experts.setdefault(key, []).append((float(line["tokens"]), touched, seconds))
            continue
        rows = float(line["tokens"] or line["sequences"])
        kernels.setdefault(key, []).append(
            KernelRow(name=line["layer"], rows=rows, seconds=seconds)
        )
    return {
        key: Profile(
            kernels=tuple(kernels[key]),
            attention=_attention(np.array(rows)),
            experts=_experts(np.array(experts[key])) if key in experts else None,
        )
        for key, rows in attention.items()
    }


def _attention(rows: Floats) -> AttentionRows:
    """The profiler counts what is cached before a decode; a context has its own token too."""
    return AttentionRows(
        new=rows[:, 0],
        cached=rows[:, 1],
        requests=rows[:, 2],
        contexts=np.where(rows[:, 2] > 0, rows[:, 3] + 1, 0.0),
        seconds=rows[:, 4] * MICRO,
    )


def _experts(rows: Floats) -> ExpertRows:
    return ExpertRows(tokens=rows[:, 0], touched=rows[:, 1], seconds=rows[:, 2], active=8)
