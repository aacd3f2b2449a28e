"""What an engine takes beside weights and cache, before it has started once (handbook 2.3).

Ranges are 90 % intervals. They come from counting live tensors in vLLM's profile run
(`GPUModelRunner.profile_run`), from the factors of aiconfigurator (Apache-2.0) that the handbook
quotes, and from start-up logs that users published (vLLM pull requests 10511 and 12126, and logs of
vLLM 0.10 to 0.32). One start of the engine on the target replaces all of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.estimate import Estimate, Source
from advisor.llm import ModelShape
from advisor.llm.mixers import LatentAttention
from advisor.units import GIB, MIB

# Activations of a forward pass per token and hidden element, by ranks: dense, mixture of experts.
_ACTIVATION_FACTORS = ((8, 5.0, 10.0), (4, 5.0, 10.0), (2, 6.5, 13.0), (1, 11.0, 22.0))
_ACTIVATION_BYTES = 2
_ACTIVATION_SPREAD = 1.6
_NCCL_BYTES = ((4, 392 * MIB), (2, 342 * MIB), (1, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A number between two others; `scaled` keeps the shares."""

    low: float
    value: float
    high: float

    def scaled(self, factor: float) -> "Range":
        """All three by one factor."""
        return Range(low=self.low * factor, value=self.value * factor, high=self.high * factor)

    def estimate(self, basis: str, source: Source = Source.LITERATURE) -> Estimate:
        """The range as a 90 % interval."""
        return Estimate(
            value=self.value,
            low=self.low,
            high=self.high,
            source=source,
            basis=f"{basis}; 90 % interval",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadPrior:
    """Ranges that differ between releases of the engine.

    `logit_bytes` are bytes of one logit in the sampler's peak: 10 with FlashInfer (16-bit logits,
    32-bit copy, probabilities), 14 with vLLM's own kernel (noise), 30 and more where it sorts.
    `graph_bytes` are CUDA graphs that the engine subtracts, None where it does not (before 0.21);
    `other_bytes` what is neither weights nor activations: kernels, workspaces, buffers.
    """

    logit_bytes: Range
    graph_bytes: Range | None
    other_bytes: Range


_OTHER = Range(low=0.07 * GIB, value=0.2 * GIB, high=0.6 * GIB)
CURRENT = OverheadPrior(
    logit_bytes=Range(low=6.0, value=12.0, high=32.0),
    graph_bytes=Range(low=0.15 * GIB, value=0.4 * GIB, high=2.0 * GIB),
    other_bytes=_OTHER,
)
# Llama-3-8B with 256 sequences: 1.26 GiB of activations on an H100 (2024), 1.1 to 1.35 GiB of all
# overheads on an RTX A5000 without graphs (vLLM 0.19): 33 to 41 bytes a logit.
BEFORE_0_21 = OverheadPrior(
    logit_bytes=Range(low=14.0, value=33.0, high=41.0), graph_bytes=None, other_bytes=_OTHER
)


def activation_bytes(
    model: ModelShape, *, max_num_batched_tokens: int, tensor_parallel: int
) -> Range:
    """Peak of one forward pass over a full batch: 2 T h c bytes (handbook 2.3)."""
    factor = next(
        (mixture if model.is_mixture else dense)
        for ranks, dense, mixture in _ACTIVATION_FACTORS
        if tensor_parallel >= ranks
    )
    peak = _ACTIVATION_BYTES * max_num_batched_tokens * model.hidden_size * factor
    return Range(low=peak / _ACTIVATION_SPREAD, value=peak, high=peak * _ACTIVATION_SPREAD)


def profile_peak(
    model: ModelShape,
    prior: OverheadPrior,
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    tensor_parallel: int,
) -> Range:
    """Peak of the profile run: the forward pass or the sampler, whichever is more.

    The sampler runs after the pass, on rows of the whole vocabulary on every rank; the batch has at
    most `max_num_batched_tokens` rows.
    """
    forward = activation_bytes(
        model, max_num_batched_tokens=max_num_batched_tokens, tensor_parallel=tensor_parallel
    )
    rows = min(max_num_seqs, max_num_batched_tokens)
    sampler = prior.logit_bytes.scaled(rows * model.vocab_size)
    return Range(
        low=max(forward.low, sampler.low),
        value=max(forward.value, sampler.value),
        high=max(forward.high, sampler.high),
    )


def communication_bytes(tensor_parallel: int) -> Range:
    """Buffers of the collectives on one rank."""
    size = float(next(size for ranks, size in _NCCL_BYTES if tensor_parallel >= ranks))
    return Range(low=size / 3, value=size, high=size * 2)


def weight_slack(model: ModelShape) -> float:
    """Share by which loaded weights exceed the computed ones at most: padding, scales, towers."""
    loose = bool(model.notes) or model.weights is not None or model.tower_parameters > 0
    latent = any(isinstance(group.mixer, LatentAttention) for group in model.layers)
    return 0.06 if loose or latent else 0.01


def quadrature(centre: float, terms: Sequence[tuple[float, Range]]) -> Range:
    """Sum of independent ranges with signs around `centre`: deviations add in quadrature."""
    down = up = 0.0
    for sign, term in terms:
        less, more = term.value - term.low, term.high - term.value
        below, above = (less, more) if sign > 0 else (more, less)
        down += below**2
        up += above**2
    return Range(low=centre - math.sqrt(down), value=centre, high=centre + math.sqrt(up))
