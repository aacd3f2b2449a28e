"""Output tokens per second of a closed loop, and what changing a configuration gains.

A closed loop keeps `concurrency` requests in flight. In steady state a batch of B of them costs B
prefills and its decode steps, one after another (handbook 3.1, serial form), and yields B outputs.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape, dtype_bytes
from advisor.roofline.efficiency import (
    FAST,
    SLOW,
    Achieved,
    Efficiency,
    Level,
    Levels,
    achieved,
    prior_efficiency,
)
from advisor.roofline.memory import kv_capacity
from advisor.roofline.step import Prefill, StepBatch, step_time_at
from advisor.serving import ServingConfig, default_block_size
from advisor.units import GIB

# vLLM 0.32's own defaults where a configuration sets none (handbook 5.3); on CUDA the smaller of
# the two that depend on the card.
_MAX_NUM_SEQS: Mapping[str, int] = {"cpu": 128, "cuda": 256}
_MAX_NUM_BATCHED_TOKENS: Mapping[str, int] = {"cpu": 2048, "cuda": 2048}
_ENDS = (Level.LOW, Level.HIGH)
# The units that multiply quantized blocks, and the bytes of one of their weights.
_QUANTIZED: Mapping[str, tuple[str, int]] = {"W8A8": ("int8", 1)}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Corner:
    """One choice among the ranges of everything uncertain."""

    machine: Achieved
    cached_share: float
    tokens_per_step: float


def served_dtype(model: ModelShape, config: ServingConfig) -> str:
    """The dtype the engine computes in: the lever, else the checkpoint's own.

    vLLM's ``auto`` serves a 32-bit checkpoint in 16 bit (vllm/config/model.py, 0.32).
    """
    lever = config.levers.dtype
    if lever is not None and lever != "auto":
        return lever
    return "bfloat16" if model.dtype == "float32" else model.dtype


def batch_limit(
    model: ModelShape, device: DeviceFacts, config: ServingConfig, tokens: float
) -> int:
    """Requests of `tokens` that run at once: scheduler slots and, if stated, the cache's size."""
    slots = config.levers.max_num_seqs or _MAX_NUM_SEQS[device.kind]
    space_gib = config.functional.kv_cache_space_gib
    if space_gib is None:
        return slots
    capacity = kv_capacity(
        available_bytes=space_gib * GIB,
        bytes_per_token=model.kv_bytes_per_token(dtype_bytes(served_dtype(model, config))),
        block_size=config.levers.block_size or default_block_size(device.kind),
    )
    return max(1, min(slots, capacity.requests(tokens)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """A configuration under a closed loop of one traffic shape on one device."""

    model: ModelShape
    device: DeviceFacts
    config: ServingConfig
    shape: TrafficShape
    batch: int

    @property
    def dtype(self) -> str:
        return served_dtype(self.model, self.config)

    @property
    def linear(self) -> tuple[str, int | None]:
        """Units of the layers of the blocks, and the bytes of their weights (None: the dtype's)."""
        quantization = self.config.levers.quantization
        return (self.dtype, None) if quantization is None else _QUANTIZED[quantization.scheme]

    def corner(self, efficiency: Efficiency, levels: Levels, text: Level) -> _Corner:
        share = self.shape.cached_share
        return _Corner(
            machine=achieved(
                self.device, self.dtype, efficiency, levels, linear_dtype=self.linear[0]
            ),
            cached_share=text.of(share) if self.config.shares_blocks and share is not None else 0.0,
            tokens_per_step=self._tokens_per_step(text),
        )

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

    def tokens_per_s(self, corner: _Corner) -> float:
        """Output tokens per second at one corner."""
        cycle_s = self.batch * self._prefill_s(corner) + self._decode_s(corner)
        return self.batch * self.shape.output_tokens / cycle_s

    def _prefill_s(self, corner: _Corner) -> float:
        """One prompt, in chunks of the token budget; at least its last token is computed."""
        prompt = self.shape.prompt_tokens
        new = max(1.0, prompt * (1 - corner.cached_share))
        budget = (
            self.config.levers.max_num_batched_tokens or _MAX_NUM_BATCHED_TOKENS[self.device.kind]
        )
        chunks = math.ceil(new / budget)
        chunk = new / chunks
        cached = prompt - new if prompt > new else 0.0
        return sum(
            self._step_s(
                StepBatch(
                    prefills=(Prefill(new_tokens=chunk, cached_tokens=cached + done * chunk),)
                ),
                corner,
            )
            for done in range(chunks)
        )

    def _decode_s(self, corner: _Corner) -> float:
        """The steps that follow the first token, which the prefill yields."""
        speculation = self.config.levers.speculative_config
        drafted = 0.0
        if speculation is not None:
            stated = self.shape.draft_tokens_per_step
            drafted = float(speculation.num_speculative_tokens) if stated is None else stated
        context = self.shape.prompt_tokens + self.shape.output_tokens / 2
        batch = StepBatch(decode_contexts=(context,) * self.batch, draft_tokens=drafted)
        steps = max(0.0, self.shape.output_tokens - 1) / corner.tokens_per_step
        return steps * self._step_s(batch, corner)

    def _step_s(self, batch: StepBatch, corner: _Corner) -> float:
        return step_time_at(
            self.model, batch, self.dtype, corner.machine, linear_bytes=self.linear[1]
        )


def _load(
    model: ModelShape,
    device: DeviceFacts,
    config: ServingConfig,
    *,
    shape: TrafficShape,
    concurrency: int,
) -> _Load:
    if concurrency < 1:
        raise InvalidInput("concurrency", f"{concurrency} is below 1")
    limit = batch_limit(model, device, config, shape.prompt_tokens + shape.output_tokens)
    return _Load(
        model=model,
        device=device,
        config=config,
        shape=shape,
        batch=min(concurrency, limit),
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
    shares = efficiency or prior_efficiency(device)
    load = _load(model, device, config, shape=shape, concurrency=concurrency)
    centre = load.tokens_per_s(load.corner(shares, Levels(), Level.CENTRE))
    values = [
        load.tokens_per_s(load.corner(shares, levels, text))
        for levels, text in ((SLOW, Level.LOW), (FAST, Level.HIGH))
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
    shares = efficiency or prior_efficiency(device)
    first, second = (
        _load(model, device, config, shape=shape, concurrency=concurrency) for config in configs
    )

    if first.config.shares_blocks is not second.config.shares_blocks and shape.cached_share is None:
        raise InvalidInput("shape.cached_share", "is not known for this traffic")

    def gain(levels: tuple[Levels, Levels], text: Level) -> float:
        before = first.tokens_per_s(first.corner(shares, levels[0], text))
        return second.tokens_per_s(second.corner(shares, levels[1], text)) / before

    same_rate = (first.dtype, first.linear) == (second.dtype, second.linear)
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
        basis="serial roofline, extremes over the ends of all ranges",
    )
