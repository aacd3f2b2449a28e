"""Step times of planted machines: what a calibration must find again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from advisor.hardware import datasheet
from advisor.roofline.calibration.peak_machine import PeakMachine
from advisor.roofline.calibration.stretches import Observation
from advisor.roofline.step.batch import Prefill, StepBatch
from advisor.roofline.step.served import ServedModel
from tests.fakes.published_models import LLAMA_31_8B

Law: TypeAlias = Callable[[StepBatch], float]

H100_8B = PeakMachine(served=ServedModel(model=LLAMA_31_8B), device=datasheet("h100-sxm"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedStep:
    """An affine step in seconds; up to `knee` positions cost the same, batches pad to `graphs`."""

    fixed_s: float = 7e-3
    token_s: float = 21e-6
    context_s: float = 39e-9
    pair_s: float = 0.5e-9
    request_s: float = 10e-6
    knee: float = 0.0
    graphs: tuple[int, ...] = ()

    def __call__(self, batch: StepBatch) -> float:
        decodes = len(batch.decode_contexts)
        padded = next((size for size in self.graphs if size >= decodes), decodes)
        tokens = batch.tokens - decodes + padded
        pairs = sum(
            p.new_tokens * p.cached_tokens + p.new_tokens * (p.new_tokens + 1) / 2
            for p in batch.prefills
        )
        return (
            self.fixed_s
            + self.token_s * max(tokens, self.knee)
            + self.context_s * sum(batch.decode_contexts)
            + self.pair_s * pairs
            + self.request_s * (decodes + len(batch.prefills))
        )


def decode(requests: int, context: float) -> StepBatch:
    """Equal requests that decode."""
    return StepBatch(decode_contexts=(float(context),) * requests)


def prefill(new: float, count: int = 1, decodes: int = 0, context: float = 0.0) -> StepBatch:
    """Prompts, beside decodes if any."""
    return StepBatch(
        prefills=(Prefill(new_tokens=new),) * count,
        decode_contexts=(float(context),) * decodes,
    )


# Handbook 14.2: batches, contexts, prompts alone and several, and a mixed step.
DESIGN = (
    *(decode(n, s) for n in (1, 8, 32, 96, 160, 256) for s in (128, 1024, 4096)),
    *(prefill(new) for new in (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)),
    *(prefill(512, count) for count in (2, 4)),
    prefill(1024, 1, 32, 1024),
    prefill(256, 1, 64, 2048),
    prefill(2048, 1, 128, 512),
)


def timed(
    law: Law, batches: Sequence[StepBatch], *, noise: float, rng: np.random.Generator
) -> list[Observation]:
    """One timing of each batch with lognormal noise."""
    factors = np.exp(noise * rng.standard_normal(len(batches)))
    return [
        Observation.of(batch, law(batch) * float(factor))
        for batch, factor in zip(batches, factors, strict=True)
    ]
