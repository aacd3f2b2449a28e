"""A second cache in host memory (LMCache on an RTX 4090), from what loading and storing it costs.

Rules, stated before the predictions: a conversation sends at least half of its prompt again and its
earlier turns have left the GPU (the pool holds 20 to 30 thousand tokens); a random prompt is stored
and never found; a prompt that the GPU holds needs nothing from the host. Only whole chunks are
found again, so half a chunk per prompt is computed anew.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.roofline.published import HOST_LINK_BYTES_PER_S
from advisor.roofline.step.rooflinestep import RooflineStep
from tests.validate.effects.arms import Arm, between
from tests.validate.effects.models import QWEN3_8B, served, steps

LMCACHE = "toggle_gpustack_lmcache.csv"
_CARD = "rtx-4090"
_GENERATION = 4
_CHUNK, _PLAIN, _WITH = 256, "Without LMCache", "With LMCache"
_RETURNING = 0.5
_TUNING = "With LMCache chunk_size="
# A question's own share of each case: how much of the prompt the host's cache gives, and stores.
_FOUND = {"Multi-turn Conversation Performance": _RETURNING, "Tuning Chunk Size": _RETURNING}
_STORED = {"Cache Miss Scenarios (Random Dataset)": 1.0}
_GOALS = {
    "Total TPS": ("throughput", 1),
    "Mean TTFT (ms)": ("TTFT", -1),
    "Mean TPOT (ms)": ("TPOT", -1),
}
_TUNING_GOALS = {"Input TPS": ("throughput", 1), "Mean TTFT (ms)": ("TTFT", -1)}
_TOGETHER = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Costs:
    """Seconds of the device for one prompt, at one end of the ranges."""

    step: RooflineStep
    link_bytes_per_s: float

    def prompt_s(self, tokens: float, cached: float = 0.0) -> float:
        """Computing the rest of a prompt, in chunks beside others of a full step."""
        rest = np.array(max(1.0, tokens - cached))
        each = self.step.prefill_steps_s(np.minimum(rest, 2048.0), np.array(cached), np.array(1.0))
        return float(each * rest / np.minimum(rest, 2048.0))

    def moved_s(self, tokens: float) -> float:
        """Moving so many tokens of cache over the link."""
        return tokens * self.step.served.cache_token_bytes / self.link_bytes_per_s

    def answer_s(self, prompt: float, output: float) -> float:
        """A request's share of the decode steps it takes part in."""
        if output <= 1:
            return 0.0
        step = self.step.decode_steps_s(np.array(_TOGETHER), np.array(prompt + output / 2))
        return float(step) * output / _TOGETHER


def lmcache_arms(measurements: Path) -> Iterator[Arm]:
    """Each case with against without, and two sizes of chunk against the usual one, by goal.

    Input and output rates of a case are the same measurement as its total and count once.
    """
    with (measurements / LMCACHE).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        chunk = row["configuration"].removeprefix(_TUNING)
        tuned = chunk.isdigit()
        goals = _TUNING_GOALS if tuned else _GOALS
        usual = tuned and int(chunk) == _CHUNK
        if row["metric"] not in goals or row["configuration"] == _PLAIN or usual:
            continue
        goal, direction = goals[row["metric"]]
        partner = f"{_TUNING}{_CHUNK}" if tuned else _PLAIN
        ratio = float(row["value"]) / _partner(rows, row, partner)
        gains = list(_gains(row, int(chunk) if tuned else None))
        yield Arm(
            source="lmcache",
            label=f"{row['scenario']}, {row['case']}",
            technique=f"chunks of {chunk}" if tuned else _WITH,
            goal=goal,
            measured=ratio**direction,
            predicted=between(gains, "closed form"),
        )


def _partner(rows: list[dict[str, str]], row: Mapping[str, str], configuration: str) -> float:
    same = ("scenario", "case", "metric")
    found = next(
        one
        for one in rows
        if one["configuration"] == configuration and all(one[key] == row[key] for key in same)
    )
    return float(found["value"])


def _gains(row: Mapping[str, str], chunk: int | None) -> Iterator[float]:
    """Seconds of the device for one request, without over with: a closed loop's every goal."""
    prompt = 1000.0 * int(row["case"].split("K")[0])
    output = 1.0 if "1 Output" in row["case"] else 128.0
    link = HOST_LINK_BYTES_PER_S[_GENERATION]
    for step, rate in zip(
        steps(_CARD, served(QWEN3_8B)), (link.value, link.high, link.low), strict=True
    ):
        costs = _Costs(step=step, link_bytes_per_s=rate)
        plain = _request_s(costs, row["scenario"], (prompt, output), None)
        if chunk is None:
            yield plain / _request_s(costs, row["scenario"], (prompt, output), _CHUNK)
        else:
            usual = _request_s(costs, row["scenario"], (prompt, output), _CHUNK)
            yield usual / _request_s(costs, row["scenario"], (prompt, output), chunk)


def _request_s(
    costs: _Costs, scenario: str, lengths: tuple[float, float], chunk: int | None
) -> float:
    """One request; `chunk` None is without the host's cache."""
    prompt, output = lengths
    answer_s = costs.answer_s(prompt, output)
    on_device = "VRAM" in scenario
    if on_device:
        return costs.prompt_s(prompt, 0.99 * prompt) + answer_s
    if chunk is None:
        return costs.prompt_s(prompt) + answer_s
    found = max(0.0, _FOUND.get(scenario, 0.0) * prompt - chunk / 2)
    moved = found + _STORED.get(scenario, 1 - _FOUND.get(scenario, 0.0)) * prompt
    return costs.prompt_s(prompt, found) + costs.moved_s(moved) + answer_s
