"""What an engine's counters say of drafts, misses included (handbook 6.3)."""

from dataclasses import dataclass

from advisor.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeYield:
    """Of decode steps of single requests; `acceptance_length` counts steps with a draft only.

    vLLM counts a draft only where something was drafted, so that look-up misses are invisible in
    `acceptance_length`: `tokens_per_step` is what a step really yields.
    """

    decode_steps: int
    coverage: float
    acceptance_length: float
    tokens_per_step: float


def decode_yield(*, generated: int, accepted: int, drafts: int, requests: int) -> DecodeYield:
    """From the counters of one load point; each request's first token comes from its prompt.

    Without one decode step, or with more drafts than steps, they raise `InvalidInput`.
    """
    steps = generated - accepted - requests
    if steps < 1 or not 0 <= drafts <= steps or accepted < 0:
        raise InvalidInput("counters", f"{drafts} drafts in {steps} decode steps")
    return DecodeYield(
        decode_steps=steps,
        coverage=drafts / steps,
        acceptance_length=1 + accepted / drafts if drafts else 1.0,
        tokens_per_step=1 + accepted / steps,
    )


def tokens_per_step(coverage: float, acceptance_length: float) -> float:
    """Tokens of a decode step in the mean: 1 + coverage x (AL - 1)."""
    return 1 + coverage * (acceptance_length - 1)
