"""gpustack's performance lab: options of vLLM toggled one by one, each played through.

Rules, stated before the predictions. Admitted are rows of vLLM on NVIDIA GPUs without flags whose
document has a row that differs in the command alone: the row of an option against the row whose
command lacks it, else against the document's first row of vLLM, and the "optimized" command against
the "baseline" one of the same case. Rows whose run names another value than the command take the
run's; a command that serves another model than its document is no toggle. The goal is total tokens
per second: requests are all sent at once.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from advisor.estimate import Estimate, Source
from advisor.hardware import all_reduce
from advisor.llm import ModelShape, read_config
from advisor.simulator import Load
from tests.fakes.model_configs import GPT_OSS_20B, decoder
from tests.validate.effects.arms import Arm, between
from tests.validate.effects.serving import Engine, runs, sharegpt, tokens_per_s

LAB = "toggle_gpustack_performance_lab.csv"
_MOST_TOKENS, _FEWEST = 1_000_000, 50
_CARDS = (("A100", "a100-80-sxm"), ("H100", "h100-sxm"), ("H200", "h200-sxm"))
_FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
_MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["self_attn", "router"]}
_MOE_235B = decoder(
    *("Qwen3MoeForCausalLM", 4096, 94, 64, 4, 12288, 151936),
    num_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=1536,
    head_dim=128,
    max_position_embeddings=40960,
)
_GLM_46 = decoder(
    *("Glm4MoeForCausalLM", 5120, 92, 96, 8, 12288, 151552),
    head_dim=128,
    n_routed_experts=160,
    n_shared_experts=1,
    num_experts_per_tok=8,
    moe_intermediate_size=1536,
    first_k_dense_replace=3,
    attention_bias=True,
    use_qk_norm=True,
    max_position_embeddings=202752,
)
_OSS_120B = {
    **GPT_OSS_20B,
    "num_hidden_layers": 36,
    "num_local_experts": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}
_CONFIGS: Mapping[str, Mapping[str, object]] = {
    "Qwen3-14B": decoder("Qwen3ForCausalLM", 5120, 40, 40, 8, 17408, 151936, head_dim=128),
    "Qwen3-32B": decoder("Qwen3ForCausalLM", 5120, 64, 64, 8, 25600, 151936, head_dim=128),
    "Qwen3-235B-A22B-Instruct-2507": _MOE_235B,
    "GLM-4.6": _GLM_46,
    "gpt-oss-20b": {**GPT_OSS_20B, "quantization_config": _MXFP4},
    "gpt-oss-120b": {**_OSS_120B, "quantization_config": _MXFP4},
}
_SUFFIXES = {"-FP8": _FP8, "-AWQ": _AWQ}
# Settings of parsers and templates change no step.
_WITHOUT_EFFECT = ("--enable-auto-tool-choice", "--tool-call-parser", "--max-model-len")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a row served."""

    model: str
    options: tuple[tuple[str, str], ...]

    def get(self, name: str, default: str = "") -> str:
        """The value of an option, "" for one without."""
        return dict(self.options).get(name, default)

    def without(self, name: str) -> "Command":
        """The same command without an option."""
        return replace(self, options=tuple(item for item in self.options if item[0] != name))


def lab_arms(measurements: Path) -> Iterator[Arm]:
    """Every admitted row with its partner."""
    with (measurements / LAB).open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if _admitted(row)]
    for row in rows:
        partner = _partner(row, rows)
        if partner is None:
            continue
        yield Arm(
            source="performance lab",
            label=f"{row['doc']} {row['run_comment'] or 'ShareGPT'}",
            technique=_toggled(command(partner), command(row)),
            goal="throughput",
            measured=float(row["total_tok_s"]) / float(partner["total_tok_s"]),
            predicted=_predicted(partner, row),
        )


def _admitted(row: Mapping[str, str]) -> bool:
    stated = re.sub(r"[^a-z0-9]", "", row["model"].split("/")[-1].lower())
    served = re.sub(r"[^a-z0-9]", "", command(row).model.lower())
    ours = row["engine"] == "vllm" and not row["flags"] and "NVIDIA" in row["hardware"]
    return ours and served.startswith(stated)


def command(row: Mapping[str, str]) -> Command:
    """Model and options of a row; a run that names its option's value has that one."""
    text = row["serving_script"]
    found = re.search(r"vllm serve (\S+)", text)
    model = "" if found is None else found[1].split("/")[-1]
    options = dict(re.findall(r"(?<=\s)(--?[a-z][a-z-]*)[ =]?([^-\s]\S*)?", text))
    options |= dict(re.findall(r"(--[a-z-]+) (\d+)", row["run_comment"]))
    for setting, value in re.findall(r"export (\w+)=(\S+)", text):
        options[setting] = value
    return Command(model=model, options=tuple(sorted(options.items())))


def _workload(row: Mapping[str, str]) -> tuple[str, str, str]:
    case = "" if row["run_comment"].startswith("--") else row["run_comment"]
    return row["doc"], case, row["max_concurrency"]


def _partner(row: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> Mapping[str, str] | None:
    same = [other for other in rows if _workload(other) == _workload(row)]
    if row["section"] == "Other Benchmark Cases":
        if not row["arm"].startswith("Optimized"):
            return None
        return next((other for other in same if other["arm"].startswith("Baseline")), None)
    if "Choosing" in row["section"] or "Baseline of" in row["section"]:
        return None
    mine = command(row)
    for name, _ in mine.options:
        for other in same:
            if other is not row and command(other) == mine.without(name):
                return other
    first = next((other for other in same if other["variant"] == "vLLM"), None)
    return None if first is row else first


def _toggled(before: Command, after: Command) -> str:
    kept = set(before.options)
    changed = [
        f"{name} {value}".strip() for name, value in after.options if (name, value) not in kept
    ]
    if before.model != after.model:
        changed.insert(0, after.model)
    return ", ".join(changed) or "nothing"


# ------------------------------------------------------------------ prediction


def _predicted(before: Mapping[str, str], after: Mapping[str, str]) -> Estimate | None:
    one, two = command(before), command(after)
    effective = [_reduced(item) for item in (one, two)]
    if effective[0] == effective[1]:
        return Estimate(
            value=1.0, low=1.0, high=1.0, source=Source.ROOFLINE, basis="changes no step"
        )
    engines = [_engine(before, one), _engine(after, two)]
    if engines[0] is None or engines[1] is None:
        return None
    load = _load(after)
    rates = [
        [tokens_per_s(load, outcome) for outcome in runs(engine, load)]
        for engine in engines
        if engine is not None
    ]
    # An end of the ranges at which either engine has no room for the prompts says nothing.
    gains = [new / old for old, new in zip(*rates, strict=True) if old and new]
    return between(gains, "simulated") if rates[0][0] and rates[1][0] else None


def _reduced(item: Command) -> Command:
    for name in _WITHOUT_EFFECT:
        item = item.without(name)
    return item


def _engine(row: Mapping[str, str], item: Command) -> Engine | None:
    """None for what has no model: pipelines, drafts of other kinds, sparse attention."""
    shape = _shape(item.model)
    known = {"-tp", "--enable-expert-parallel", "--async-scheduling", "--max-num-batched-tokens"}
    if shape is None or {name for name, _ in _reduced(item).options} - known - _UNREAD:
        return None
    card = next(key for name, key in _CARDS if name in row["hardware"])
    ranks = int(item.get("-tp", "1"))
    if ranks > 1 and all_reduce(card, ranks) is None:
        return None
    budget = item.get("--max-num-batched-tokens")
    options = dict(item.options)
    return Engine(
        card=card,
        model=shape,
        release=(0, 11),
        ranks=ranks,
        expert_parallel="--enable-expert-parallel" in options,
        async_scheduling="--async-scheduling" in options,
        max_num_batched_tokens=int(budget) if budget else None,
        max_model_len=40960,
    )


_UNREAD = {"--gpu-memory-utilization", "--reasoning-parser", "--tokenizer-mode"}


@cache
def _shape(name: str) -> ModelShape | None:
    for suffix, method in _SUFFIXES.items():
        config = _CONFIGS.get(name.removesuffix(suffix))
        if name.endswith(suffix) and config is not None:
            return read_config({**config, "quantization_config": method})
    config = _CONFIGS.get(name)
    return None if config is None else read_config(config)


def _load(row: Mapping[str, str]) -> Load:
    """ShareGPT's lengths, or equal ones; of long prompts fewer, whose rate is the same."""
    means = round(float(row["mean_in"])), round(float(row["mean_out"]))
    count = int(float(row["successful"]))
    concurrency = int(float(row["max_concurrency"])) if row["max_concurrency"] else None
    return _made(count, means, concurrency, equal=row["run_comment"].startswith("random"))


@cache
def _made(count: int, means: tuple[int, int], concurrency: int | None, *, equal: bool) -> Load:
    if not equal:
        return replace(sharegpt(count, means), concurrency=concurrency)
    prompt, output = means
    count = min(count, max(_FEWEST, _MOST_TOKENS // prompt))
    return Load(
        arrival_s=np.zeros(count),
        prompt_tokens=np.full(count, prompt, dtype=np.int64),
        output_tokens=np.full(count, output, dtype=np.int64),
        concurrency=concurrency,
    )
