"""One batch at a time: Argonne's quantized weights and caches and its draft model, and ModelOpt."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from advisor.errors import UnknownName
from advisor.hardware import DATASHEETS
from advisor.llm import ModelShape, WeightFormat, weight_format
from advisor.roofline.engine_defaults import engine_defaults
from advisor.roofline.published import DRAFT_MODEL_ACCEPTANCE, on_unlike_text
from advisor.roofline.speculation import expected_tokens
from advisor.roofline.step.rooflinestep import RooflineStep
from tests.validate.effects.arms import Arm, between
from tests.validate.effects.models import (
    LLAMA_2_7B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LLAMA_68M,
    MIXTRAL,
    W4_FLOAT8,
    served,
    steps,
)

QUANT = "batch_latency_argonne_quant.csv"
DRAFTS = "specdecode_argonne_a100.csv"
MODELOPT = "quant_modelopt_h200_trtllm.csv"
_CARDS = {"Nvidia H100 GPU": "h100-sxm", "Nvidia A100 GPU": "a100-40-sxm", "H200": "h200-sxm"}
_WEIGHTS = {"fp16": None, "fp8": "fp8", "int8": "W8A16"}
# The cache has one 8-bit width; TensorRT-LLM's int8 takes as many bytes as fp8.
_CACHES = {"fp16": None, "fp8": "fp8", "int8": "fp8"}
_PRECISIONS: Mapping[str, WeightFormat] = {
    "fp8": weight_format("fp8"),
    "int4_awq": weight_format("W4A16"),
    "w4a8_awq": W4_FLOAT8,
}
_MODELS = {
    "meta-llama/Llama-2-7b-hf": LLAMA_2_7B,
    "mistralai/Mixtral-8x7B-v0.1": MIXTRAL,
    "Llama3.1-8B": LLAMA_3_8B,
    "Llama3.1-70B": LLAMA_3_70B,
}
# TensorRT-LLM 0.15's weight-only kernels know no instruction later than Ampere's.
_AMPERE_KERNELS = "int4_awq"
_POINTS = 8
# The paper of these measurements is of 2024; its quantized runs are not later than this release.
RELEASE = (0, 6)


def offline_arms(measurements: Path) -> Iterator[Arm]:
    """Every row with a partner that differs in the technique alone."""
    yield from _quantized(_rows(measurements / QUANT))
    yield from _drafted(_rows(measurements / DRAFTS))
    yield from _modelopt(_rows(measurements / MODELOPT))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def batch_s(step: RooflineStep, card: str, batch: int, lengths: tuple[int, int]) -> float:
    """Seconds of one batch: prompts in chunks of the token budget, then decoding together."""
    prompt, output = lengths
    budget = engine_defaults(DATASHEETS[card], "offline").max_num_batched_tokens
    together = max(1, min(batch, budget // prompt))
    prefill = step.prefill_steps_s(
        np.array(float(prompt)), np.array(0.0), np.array(float(together))
    )
    return float(prefill) * batch / together + output * decode_s(step, batch, lengths)


def decode_s(step: RooflineStep, batch: int, lengths: tuple[int, int]) -> float:
    """Mean seconds of a decode step over the output."""
    prompt, output = lengths
    contexts = prompt + output * (np.arange(_POINTS) + 0.5) / _POINTS
    requests = np.full(_POINTS, float(batch))
    return float(step.decode_steps_s(requests, contexts).mean())


# ------------------------------------------------------------------ Argonne: weights and cache


def _quantized(rows: Sequence[Mapping[str, str]]) -> Iterator[Arm]:
    """Against vLLM in 16 bit on the same card, length and batch.

    TensorRT-LLM's rows have no 16-bit partner in the file and are no arms.
    """
    plain = {
        (row["hardware"], row["in_out_len"], row["batch"]): float(row["latency_s"])
        for row in rows
        if row["framework"] == "vLLM" and _formats(row) == ("fp16", "fp16")
    }
    for row in rows:
        key = row["hardware"], row["in_out_len"], row["batch"]
        weights, cache = _formats(row)
        if row["framework"] != "vLLM" or (weights, cache) == ("fp16", "fp16") or key not in plain:
            continue
        card, batch, length = _CARDS[row["hardware"]], int(row["batch"]), int(row["in_out_len"])
        name = _WEIGHTS[weights]
        runs = served(
            LLAMA_3_8B, None if name is None else weight_format(name), cache=_CACHES[cache]
        )
        lengths = (length, length)
        gains = [
            batch_s(before, card, batch, lengths) / batch_s(after, card, batch, lengths)
            for before, after in zip(
                steps(card, served(LLAMA_3_8B)), steps(card, runs, RELEASE), strict=True
            )
        ]
        yield Arm(
            source="argonne quant",
            label=f"{card} {length} tokens, batch {batch}",
            technique=f"weights {weights}, cache {cache}",
            goal="throughput of a batch",
            measured=plain[key] / float(row["latency_s"]),
            predicted=between(gains, "roofline"),
        )


def _formats(row: Mapping[str, str]) -> tuple[str, str]:
    found = re.fullmatch(r"Weight = (\w+), KV Cache = (\w+)", row["precision"])
    if found is None:
        raise UnknownName("precision", row["precision"], ["Weight = ..., KV Cache = ..."])
    return found[1], found[2]


# ------------------------------------------------------------------ Argonne: a draft model


def _drafted(rows: Sequence[Mapping[str, str]]) -> Iterator[Arm]:
    """With llama-68m against without; rows whose partner is missing are no arms.

    The acceptance was not published. Prompts are random tokens: `on_unlike_text` of what SpecInfer
    measured for this draft on natural text, for both targets.
    """
    keyed = ("model", "n_devices", "in_out_len", "batch")
    plain = {
        tuple(row[name] for name in keyed): float(row["latency_s"])
        for row in rows
        if row["draft_model"] == "None"
    }
    for row in rows:
        before_s = plain.get(tuple(row[name] for name in keyed))
        if row["draft_model"] == "None" or before_s is None:
            continue
        batch, length, drafts = (
            int(row[name]) for name in ("batch", "in_out_len", "num_spec_tokens")
        )
        gains = _draft_gains(_MODELS[row["model"]], int(row["n_devices"]), (batch, length), drafts)
        yield Arm(
            source="argonne drafts",
            label=f"{row['model']} {length} tokens, batch {batch}",
            technique="draft model llama-68m",
            goal="throughput of a batch",
            measured=before_s / float(row["latency_s"]),
            predicted=between(gains, "roofline of target and draft"),
        )


def _draft_gains(model: ModelShape, ranks: int, load: tuple[int, int], drafts: int) -> list[float]:
    batch, length = load
    card, lengths = "a100-40-sxm", (length, length)
    acceptance = on_unlike_text(DRAFT_MODEL_ACCEPTANCE)
    target = steps(card, served(model, ranks=ranks))
    small = steps(card, served(LLAMA_68M))
    found = []
    for which, accepted in enumerate((acceptance.value, acceptance.high, acceptance.low)):
        plain_s = decode_s(target[which], batch, lengths)
        drafting_s = drafts * decode_s(small[which], batch, lengths)
        # Verification was one sequence per position before vLLM 0.6.3 (batch expansion): each
        # reads the whole cache.
        verifying_s = decode_s(target[which], batch * (1 + drafts), lengths) + drafting_s
        decoded_s = verifying_s / expected_tokens(accepted, drafts)
        prefill_s = batch_s(target[which], card, batch, (length, 0)) if length else 0.0
        found.append((prefill_s + length * plain_s) / (prefill_s + length * decoded_s))
    return found


# ------------------------------------------------------------------ ModelOpt on an H200


def _modelopt(rows: Sequence[Mapping[str, str]]) -> Iterator[Arm]:
    """Per GPU, against bf16 at the same batch; 70B in bf16 needs two GPUs."""
    plain = {(row["model"], row["batch"]): row for row in rows if row["precision"] == "bf16"}
    for row in rows:
        if row["precision"] == "bf16":
            continue
        base = plain[row["model"], row["batch"]]
        model, batch = _MODELS[row["model"]], int(row["batch"])
        lengths = int(row["input_len"]), int(row["output_len"])
        before = steps("h200-sxm", served(model, ranks=int(base["tp"])))
        after = steps(
            "h200-sxm",
            served(model, _PRECISIONS[row["precision"]], ranks=int(row["tp"])),
            ampere_kernels=row["precision"] == _AMPERE_KERNELS,
        )
        share = int(base["tp"]) / int(row["tp"])
        gains = [
            share
            * batch_s(one, "h200-sxm", batch, lengths)
            / batch_s(two, "h200-sxm", batch, lengths)
            for one, two in zip(before, after, strict=True)
        ]
        yield Arm(
            source="modelopt",
            label=f"{row['model']} batch {batch}",
            technique=row["precision"],
            goal="throughput per GPU",
            measured=float(row["output_tok_s_per_gpu"]) / float(base["output_tok_s_per_gpu"]),
            predicted=between(gains, "roofline"),
        )
