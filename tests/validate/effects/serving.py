"""Engines that serve a load: quantized Qwen3-8B of gpustack, and the KubeCon arms, simulated.

Rules, stated before the predictions: lengths of ShareGPT are log-normal around the published means
and at most 1,024; engines of these data are older than 0.21 and get 0.9 of the memory. The KubeCon
prompts are random tokens of which about half is shared (the generator's shared prefix and question
are of like length), arrivals are Poisson.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np

from advisor.estimate import Estimate, Source
from advisor.hardware import DATASHEETS
from advisor.llm import ModelShape, WeightFormat, weight_format
from advisor.llm.quantized import integer_format
from advisor.roofline.engine_defaults import engine_defaults
from advisor.roofline.memory import (
    BEFORE_0_21,
    CacheSettings,
    DeviceMemory,
    MemoryPlan,
    memory_budget,
)
from advisor.roofline.published import (
    EAGLE3_ACCEPTANCE,
    EAGLE_ROUND_SHARE,
    FIRST_ENGINE_SHARE,
    on_unlike_text,
    unfused_unpack_s,
)
from advisor.roofline.step.machine import Machine
from advisor.roofline.step.rooflinestep import RooflineStep
from advisor.roofline.step.steptime import TableLimits
from advisor.simulator import Load, Outcome, SchedulerSettings, Speculation, simulate
from advisor.simulator.from_layout import cache_groups
from tests.validate.effects.arms import Arm, between
from tests.validate.effects.models import LLAMA_3_8B, QWEN3_8B, served, steps

QUANTIZATION = "toggle_gpustack_quantization.csv"
KUBECON = "toggle_kubecon2025_inference_perf.csv"
SEED = 20261130
_CARDS = {"RTX 4090 24GB": "rtx-4090", "A100 80GB": "a100-80-sxm", "H100 80GB": "h100-sxm"}
_UTILIZATION = 0.9
_BLOCK = 16
_SHAREGPT, _SHAREGPT_SPREAD, _SHAREGPT_MOST = (217, 200), 1.0, 1024
_UNFUSED_BITS = 4.0
_FORMATS: Mapping[str, WeightFormat] = {
    "AWQ": weight_format("W4A16-zero"),
    "AWQ Marlin": weight_format("W4A16-zero"),
    "GPTQ Int4": weight_format("W4A16"),
    "GPTQ-Marlin Int4": weight_format("W4A16"),
    "Int4-W4A16": weight_format("W4A16"),
    "GPTQ Int8": integer_format(8, 128),
    "GPTQ Marlin Int8": integer_format(8, 128),
    "FP8 Static": weight_format("fp8"),
    "FP8 Dynamic": weight_format("fp8"),
}
_UNFUSED = "bitsandbytes"
# AWQ checkpoints run on Marlin on every card (vLLM 0.9, quantization/awq_marlin.py); symmetric ones
# of compressed-tensors and GPTQ run on Machete on Hopper.
_MARLIN = frozenset({"AWQ", "AWQ Marlin"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A model on a card under a command; `unfused` weights are unpacked before every product."""

    card: str
    model: ModelShape
    weights: WeightFormat | None = None
    cache: str | None = None
    unfused: bool = False
    ampere_kernels: bool = False
    release: tuple[int, int] = (0, 9)
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    prefix_caching: bool = True
    chunked_prefill: bool = True
    drafts: int = 0
    ranks: int = 1
    expert_parallel: bool = False
    async_scheduling: bool = False
    max_model_len: int = field(default=8192)

    def plan(self) -> MemoryPlan:
        """What it takes of the card."""
        defaults = engine_defaults(DATASHEETS[self.card])
        stored = weight_format("W4A16") if self.unfused else self.weights
        budget = self.max_num_batched_tokens or defaults.max_num_batched_tokens
        return MemoryPlan(
            model=self.model if stored is None else replace(self.model, weights=stored),
            settings=CacheSettings(
                dtype=self.model.dtype,
                max_model_len=self.max_model_len,
                max_num_batched_tokens=budget,
                kv_cache_dtype=self.cache or "auto",
                async_scheduling=self.async_scheduling,
                tensor_parallel=self.ranks,
            ),
            device=DeviceMemory(
                kind="cuda",
                total_bytes=DATASHEETS[self.card].memory_bytes,
                utilization=_UTILIZATION,
            ),
            max_num_seqs=self.max_num_seqs or defaults.max_num_seqs,
            prior=BEFORE_0_21,
        )


_PLAYED: dict[tuple[Engine, int, tuple[float, ...]], list[Outcome]] = {}


def runs(engine: Engine, load: Load, extra_s: tuple[float, ...] = (0.0, 0.0, 0.0)) -> list[Outcome]:
    """The load on the engine at the centre and at both ends; `extra_s` is added to each step.

    Loads are made once each (`sharegpt` and the like), so what was played is known by its load.
    """
    key = engine, id(load), extra_s
    if key not in _PLAYED:
        _PLAYED[key] = _play(engine, load, extra_s)
    return _PLAYED[key]


def _play(engine: Engine, load: Load, extra_s: tuple[float, ...]) -> list[Outcome]:
    plan = engine.plan()
    blocks = [0 if one is None else one.num_blocks for one in memory_budget(plan).capacities()]
    low, centre, high = blocks
    found = []
    for step, pool, extra in zip(_steps(engine), (centre, high, low), extra_s, strict=True):
        slowed = replace(step, machine=_slowed(engine, step, extra))
        limits = TableLimits(
            max_tokens=plan.settings.max_num_batched_tokens,
            max_requests=min(plan.max_num_seqs, len(load)),
            max_context=engine.max_model_len,
        )
        found.append(
            simulate(load, _settings(engine, plan, max(2, pool)), slowed.tables(limits), seed=SEED)
        )
    return found


def _steps(engine: Engine) -> list[RooflineStep]:
    one = replace(
        served(engine.model, engine.weights, cache=engine.cache, ranks=engine.ranks),
        expert_parallel=engine.expert_parallel,
    )
    return steps(
        engine.card,
        one,
        engine.release,
        drafted=engine.drafts,
        ampere_kernels=engine.ampere_kernels,
    )


def _slowed(engine: Engine, step: RooflineStep, extra_s: float) -> Machine:
    machine = replace(step.machine, async_scheduling=engine.async_scheduling)
    if engine.unfused:
        reached = machine.memory * machine.bandwidth_bytes_per_s
        extra_s += unfused_unpack_s(engine.model.linear_parameters, _UNFUSED_BITS, reached)
    return replace(machine, overhead_s=machine.overhead_s + extra_s)


def _settings(engine: Engine, plan: MemoryPlan, pool: int) -> SchedulerSettings:
    return SchedulerSettings(
        num_blocks=pool,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.settings.max_num_batched_tokens,
        max_model_len=engine.max_model_len,
        block_size=_BLOCK,
        enable_prefix_caching=engine.prefix_caching,
        enable_chunked_prefill=engine.chunked_prefill,
        async_scheduling=engine.async_scheduling,
        speculation=_speculation(engine.drafts),
        groups=cache_groups(plan.layout),
    )


def _speculation(drafts: int) -> Speculation | None:
    if not drafts:
        return None
    accepted = on_unlike_text(EAGLE3_ACCEPTANCE).value
    return Speculation(
        num_speculative_tokens=drafts,
        survival=tuple(accepted ** (place + 1) for place in range(drafts)),
    )


def tokens_per_s(load: Load, outcome: Outcome) -> float:
    """Prompt and output tokens of what is served over the whole time; 0 where nothing is."""
    tokens = (load.prompt_tokens + load.output_tokens)[~outcome.refused]
    return float(tokens.sum()) / outcome.duration_s if outcome.duration_s else 0.0


def tpot_s(load: Load, outcome: Outcome) -> float:
    """Mean over the requests."""
    return float(np.nanmean(outcome.tpot_s(load.output_tokens)))


def e2e_s(load: Load, outcome: Outcome) -> float:
    """Mean over the requests."""
    del load
    return float(np.nanmean(outcome.e2e_s))


# ------------------------------------------------------------------ gpustack, quantization


@cache
def sharegpt(requests: int, means: tuple[int, int] = _SHAREGPT) -> Load:
    """All at once, lengths log-normal around the means."""
    rng = np.random.default_rng(SEED)
    columns = []
    for mean in means:
        drawn = rng.lognormal(0.0, _SHAREGPT_SPREAD, requests)
        columns.append(np.clip(np.round(drawn * mean / drawn.mean()), 4, _SHAREGPT_MOST))
    prompts, outputs = (column.astype(np.int64) for column in columns)
    return Load(arrival_s=np.zeros(requests), prompt_tokens=prompts, output_tokens=outputs)


def quantization_arms(measurements: Path) -> Iterator[Arm]:
    """Every format of a card against bf16 there, once for throughput and once for TPOT."""
    with (measurements / QUANTIZATION).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    plain = {row["gpu"]: row for row in rows if _technique(row) == "BF16"}
    load = sharegpt(1000)
    for row in rows:
        if _technique(row) == "BF16":
            continue
        base, card = plain[row["gpu"]], _CARDS[row["gpu"]]
        before, after = runs(Engine(card=card, model=QWEN3_8B), load), runs(_engine(row), load)
        for goal, gain, measured in (
            ("throughput", tokens_per_s, float(row["total_tok_s"]) / float(base["total_tok_s"])),
            ("TPOT", tpot_s, float(base["mean_tpot_ms"]) / float(row["mean_tpot_ms"])),
        ):
            ratios = [
                gain(load, two) / gain(load, one) for one, two in zip(before, after, strict=True)
            ]
            gains = ratios if goal == "throughput" else [1 / ratio for ratio in ratios]
            yield Arm(
                source="gpustack quantization",
                label=f"{card}, ShareGPT at once",
                technique=_technique(row),
                goal=goal,
                measured=measured,
                predicted=between(gains, "simulated"),
            )


def _technique(row: Mapping[str, str]) -> str:
    cache = row["kv_cache_dtype"]
    return row["weight_quant"] if cache == "auto" else f"cache {cache}"


def _engine(row: Mapping[str, str]) -> Engine:
    card, cache = _CARDS[row["gpu"]], row["kv_cache_dtype"]
    return Engine(
        card=card,
        model=QWEN3_8B,
        weights=_FORMATS.get(row["weight_quant"]),
        unfused=row["weight_quant"] == _UNFUSED,
        ampere_kernels=row["weight_quant"] in _MARLIN,
        cache=None if cache == "auto" else cache,
    )


# ------------------------------------------------------------------ KubeCon

_BASE = Engine(
    card="h100-sxm",
    model=LLAMA_3_8B,
    release=(0, 11),
    max_num_seqs=128,
    prefix_caching=False,
    chunked_prefill=False,
)
_SHARING = replace(_BASE, prefix_caching=True, chunked_prefill=True)
# The option of the bitsandbytes arm and its value are one word of its command, which no engine
# reads as an option: what it ran is the arm with prefix caching and chunked prefill.
_ARMS: Mapping[str, Engine] = {
    "vllm+batch_size": replace(_BASE, max_num_seqs=192),
    "vllm+chunking_and_prefix_caching": _SHARING,
    "vllm+quantization": _SHARING,
    "vllm+eagle": replace(_BASE, drafts=4),
}
_FIRST_ENGINE = "vllm+v0_engine"
_STAGE_S, _MOST_REQUESTS = 30.0, 3000
_SATURATED_STAGE = 4
_SHARED = 0.5


def kubecon_arms(measurements: Path) -> Iterator[Arm]:
    """Five arms at seven stages of load.

    Stages up to 3 offer less than the baseline can serve: the goal is the mean end-to-end time at
    the same rate, the baseline's between its own stages. The later ones offer more than any arm
    serves: the goal is output tokens per second while requests always wait.
    """
    with (measurements / KUBECON).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    base = [row for row in rows if row["arm_dir"] == "vllm"]
    for row in rows:
        if row["arm_dir"] == "vllm":
            continue
        saturated = int(row["stage"]) >= _SATURATED_STAGE
        yield Arm(
            source="kubecon",
            label=f"stage {row['stage']}, {float(row['requested_rate']):.0f} requests/s",
            technique=row["arm"],
            goal="throughput" if saturated else "end-to-end time at the same rate",
            measured=_measured(row, base, saturated=saturated),
            predicted=_predicted(row, saturated=saturated),
        )


def _measured(
    row: Mapping[str, str], base: Sequence[Mapping[str, str]], *, saturated: bool
) -> float:
    if saturated:
        partner = next(one for one in base if one["stage"] == row["stage"])
        return float(row["output_tok_s"]) / float(partner["output_tok_s"])
    rates = [float(one["requested_rate"]) for one in base]
    times = [np.log(float(one["e2e_mean_s"])) for one in base]
    at_rate = float(np.interp(float(row["requested_rate"]), rates, times))
    return float(np.exp(at_rate)) / float(row["e2e_mean_s"])


def _predicted(row: Mapping[str, str], *, saturated: bool) -> Estimate:
    if row["arm_dir"] == _FIRST_ENGINE:
        return FIRST_ENGINE_SHARE
    rate = float(row["requested_rate"])
    lengths = round(float(row["prompt_len_mean"])), round(float(row["output_len_mean"]))
    load = _requests(None if saturated else rate, lengths)
    engine = _ARMS[row["arm_dir"]]
    before, after = runs(_BASE, load), runs(engine, load, _draft_s(engine))
    figure = tokens_per_s if saturated else e2e_s
    ratios = [figure(load, two) / figure(load, one) for one, two in zip(before, after, strict=True)]
    gains = ratios if saturated else [1 / ratio for ratio in ratios]
    return replace(between(gains, "simulated"), source=Source.SIMULATED)


def _draft_s(engine: Engine) -> tuple[float, ...]:
    """What drafting adds to a step: a share of a decode step of one request."""
    if not engine.drafts:
        return (0.0, 0.0, 0.0)
    shares = (EAGLE_ROUND_SHARE.value, EAGLE_ROUND_SHARE.low, EAGLE_ROUND_SHARE.high)
    alone = [
        float(step.decode_steps_s(np.array(1.0), np.array(float(_SHAREGPT[0]))))
        for step in _steps(replace(engine, drafts=0))
    ]
    return tuple(share * one for share, one in zip(shares, alone, strict=True))


@cache
def _requests(rate_per_s: float | None, lengths: tuple[int, int]) -> Load:
    """Poisson arrivals; None: more requests than the engine can take are always waiting."""
    prompt, output = lengths
    count = _MOST_REQUESTS
    arrivals = np.zeros(count)
    if rate_per_s is not None:
        count = int(np.clip(rate_per_s * _STAGE_S, 60, _MOST_REQUESTS))
        arrivals = np.cumsum(np.random.default_rng(SEED).exponential(1 / rate_per_s, count))
    shared = int(prompt * _SHARED) // _BLOCK
    return Load(
        arrival_s=arrivals,
        prompt_tokens=np.full(count, prompt, dtype=np.int64),
        output_tokens=np.full(count, output, dtype=np.int64),
        block_ids=np.tile(np.arange(1, shared + 1, dtype=np.int64), count),
        block_starts=np.arange(count + 1, dtype=np.int64) * shared,
    )
