"""Output tokens per second of a closed loop, and what changing a configuration gains.

A closed loop keeps `concurrency` requests in flight. In steady state a batch of B of them costs B
prefills and its decode steps, one after another (handbook 3.1, serial form), and yields B outputs.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape
from advisor.roofline.engine_defaults import engine_defaults
from advisor.roofline.memory import memory_budget
from advisor.roofline.memory_plan import memory_plan
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.efficiency import (
    FAST,
    SLOW,
    Efficiency,
    Level,
    Levels,
    prior_efficiency,
    product_units,
)
from advisor.roofline.step.prediction import roofline_step
from advisor.roofline.step.rooflinestep import RooflineStep
from advisor.roofline.step.served import ServedModel, served_dtype, served_model
from advisor.serving import ServingConfig

_ENDS = (Level.LOW, Level.HIGH)

__all__ = ["TrafficShape", "batch_limit", "predict_gain", "predict_throughput", "served_dtype"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficShape:
    """Mean request of a sample, in tokens, and what its text allows.

    `cached_share` is the share of prompt tokens that a prefix cache serves, `tokens_per_step` the
    output tokens of one decode step with drafts of up to `draft_length` tokens (steps without a
    draft included); None where the upload cannot tell. `draft_tokens_per_step` is the mean number
    of tokens drafted per step, None: a full draft in every step.
    """

    prompt_tokens: float
    output_tokens: float
    cached_share: Estimate | None = None
    tokens_per_step: Estimate | None = None
    draft_length: int | None = None
    draft_tokens_per_step: float | None = None

    def __post_init__(self) -> None:
        if self.prompt_tokens <= 0 or self.output_tokens <= 0:
            raise InvalidInput("shape", "prompt and output have at least one token in the mean")
        if self.cached_share is not None and not (
            self.cached_share.low >= 0 and self.cached_share.high <= 1
        ):
            raise InvalidInput("shape.cached_share", "is not a share")
        if self.tokens_per_step is not None and self.tokens_per_step.low < 1:
            raise InvalidInput("shape.tokens_per_step", "a step yields at least one token")


def batch_limit(
    model: ModelShape, device: DeviceFacts, config: ServingConfig, tokens: float
) -> int:
    """Requests of `tokens` that run at once: scheduler slots, and what the cache holds.

    The cache is the one that a command states, else what vLLM leaves of the device's memory.
    """
    plan = memory_plan(model, device, config)
    return max(1, min(plan.max_num_seqs, int(memory_budget(plan).requests(tokens).value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """A configuration under a closed loop of one traffic shape on one device.

    `steps` and `prefills` keep the step model, the time of a decode step and that of a prompt at
    every point of the ranges that was asked for.
    """

    served: ServedModel
    device: DeviceFacts
    config: ServingConfig
    shape: TrafficShape
    batch: int
    efficiency: Efficiency
    steps: dict[Levels, tuple[RooflineStep, float]] = field(default_factory=dict)
    prefills: dict[tuple[Levels, Level], float] = field(default_factory=dict)

    @property
    def rates(self) -> tuple[str, str]:
        """Dtypes of the units that multiply: in head and attention, and in the blocks."""
        return self.served.computed_dtype, product_units(self.device, self.served)[0]

    def tokens_per_s(self, levels: Levels, text: Level) -> float:
        """Output tokens per second at one corner of all ranges."""
        yielded = self._tokens_per_step(text)
        step, decode_s = self._step(levels)
        # The first token comes with the prefill.
        decoding_s = max(0.0, self.shape.output_tokens - 1) / yielded * decode_s
        if (levels, text) not in self.prefills:
            self.prefills[levels, text] = self._prefill_s(step, text)
        cycle_s = self.batch * self.prefills[levels, text] + decoding_s
        return self.batch * self.shape.output_tokens / cycle_s

    def _step(self, levels: Levels) -> tuple[RooflineStep, float]:
        if levels not in self.steps:
            step = roofline_step(self.served, self.device, self.efficiency, levels)
            self.steps[levels] = step, step.seconds(self._decodes())
        return self.steps[levels]

    def _decodes(self) -> StepBatch:
        """One step of all requests in flight, half of their answers done."""
        speculation = self.config.levers.speculative_config
        drafted = 0.0
        if speculation is not None:
            stated = self.shape.draft_tokens_per_step
            drafted = float(speculation.num_speculative_tokens) if stated is None else stated
        context = self.shape.prompt_tokens + self.shape.output_tokens / 2
        return StepBatch(decode_contexts=(context,) * self.batch, draft_tokens=drafted)

    def _tokens_per_step(self, text: Level) -> float:
        speculation, shape = self.config.levers.speculative_config, self.shape
        if speculation is None:
            return 1.0
        length = speculation.num_speculative_tokens
        if shape.tokens_per_step is None or shape.draft_length != length:
            raise InvalidInput(
                "shape.tokens_per_step", f"is not known for drafts of {length} tokens"
            )
        return text.of(shape.tokens_per_step)

    def _prefill_s(self, step: RooflineStep, text: Level) -> float:
        """One prompt, in chunks of the token budget; at least its last token is computed."""
        prompt, share = self.shape.prompt_tokens, self.shape.cached_share
        cached_share = text.of(share) if self.config.shares_blocks and share is not None else 0.0
        new = max(1.0, prompt * (1 - cached_share))
        stated = self.config.levers.max_num_batched_tokens
        budget = stated or engine_defaults(self.device).max_num_batched_tokens
        chunks = math.ceil(new / budget)
        cached = max(0.0, prompt - new) + np.arange(chunks, dtype=np.float64) * (new / chunks)
        chunk = np.full(chunks, new / chunks)
        return float(step.prefill_steps_s(chunk, cached, np.ones(1)).sum())


def _load(
    model: ModelShape,
    device: DeviceFacts,
    config: ServingConfig,
    *,
    shape: TrafficShape,
    concurrency: int,
    efficiency: Efficiency | None,
) -> _Load:
    if concurrency < 1:
        raise InvalidInput("concurrency", f"{concurrency} is below 1")
    limit = batch_limit(model, device, config, shape.prompt_tokens + shape.output_tokens)
    return _Load(
        served=served_model(model, config),
        device=device,
        config=config,
        shape=shape,
        batch=min(concurrency, limit),
        efficiency=efficiency or prior_efficiency(device),
    )


def _corners() -> Iterator[tuple[Levels, Level]]:
    for memory, compute, overhead, text in itertools.product(_ENDS, repeat=4):
        yield Levels(memory=memory, compute=compute, overhead=overhead), text


def predict_throughput(
    model: ModelShape,
    device: DeviceFacts,
    config: ServingConfig,
    *,
    shape: TrafficShape,
    concurrency: int,
    efficiency: Efficiency | None = None,
) -> Estimate:
    """Output tokens per second of `concurrency` requests kept in flight, before any probe.

    Low and high take every range at its slow and at its fast end: throughput rises with each.
    `efficiency` None takes the ranges assumed for the device. No cache hits are assumed where
    `shape.cached_share` is None. A dtype whose rate is unknown raises `UnknownName`; speculation
    with drafts of another length than the shape knows raises `InvalidInput`.
    """
    load = _load(model, device, config, shape=shape, concurrency=concurrency, efficiency=efficiency)
    centre = load.tokens_per_s(Levels(), Level.CENTRE)
    values = [
        load.tokens_per_s(levels, text) for levels, text in ((SLOW, Level.LOW), (FAST, Level.HIGH))
    ]
    return _roofline(centre, values)


def predict_gain(
    model: ModelShape,
    device: DeviceFacts,
    configs: tuple[ServingConfig, ServingConfig],
    *,
    shape: TrafficShape,
    concurrency: int,
    efficiency: Efficiency | None = None,
) -> Estimate:
    """Throughput of the second configuration over that of the first, before any probe.

    Both sit on the same machine, so both are taken at the same corner; only matrix rates of
    different dtypes vary apart. Raises as `predict_throughput`, and `InvalidInput` when the two
    differ in prefix caching and `shape.cached_share` is None.
    """
    first, second = (
        _load(model, device, config, shape=shape, concurrency=concurrency, efficiency=efficiency)
        for config in configs
    )

    if first.config.shares_blocks is not second.config.shares_blocks and shape.cached_share is None:
        raise InvalidInput("shape.cached_share", "is not known for this traffic")

    def gain(levels: tuple[Levels, Levels], text: Level) -> float:
        return second.tokens_per_s(levels[1], text) / first.tokens_per_s(levels[0], text)

    same_rate = first.rates == second.rates
    values = [
        gain(
            (levels, Levels(memory=levels.memory, compute=compute, overhead=levels.overhead)), text
        )
        for levels, text in _corners()
        for compute in ((levels.compute,) if same_rate else _ENDS)
    ]
    return _roofline(gain((Levels(), Levels()), Level.CENTRE), values)


def _roofline(centre: float, values: list[float]) -> Estimate:
    return Estimate(
        value=centre,
        low=min(centre, *values),
        high=max(centre, *values),
        source=Source.ROOFLINE,
        basis="serial roofline, extremes over the ends of all ranges; not the error of its form",
    )
