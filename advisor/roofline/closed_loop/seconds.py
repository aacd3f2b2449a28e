"""Seconds of one step, and of many steps that only decode, from `Curves` in compiled code."""

from advisor.roofline.step.compiled import inner
from advisor.roofline.step.curves import Curves, across, along


@inner
def step_seconds(
    curves: Curves, decodes: tuple[float, float], prompts: tuple[float, float, float]
) -> float:
    """Seconds of one step as `StepTables` says, its attention not joint.

    `decodes`: requests and their mean context. `prompts`: tokens of chunks, chunks, seconds of
    their attention.
    """
    decoding = decodes[0]
    chunk_tokens, chunks, chunks_s = prompts
    device = chunks_s
    device += along(curves.tokens, curves.dense_s, decoding + chunk_tokens)
    device += along(curves.rows, curves.head_s, decoding + chunks)
    if decoding > 0:
        device += across(curves.requests, curves.contexts, curves.decode_s, decodes)
    host = curves.host[0] + curves.host[1] * (decoding + chunks)
    return float(max(device, host) if curves.host[2] > 0.0 else device + host)


@inner
def decode_seconds(curves: Curves, requests: float, context: float) -> float:
    """Seconds of one step that decodes `requests` at a mean context."""
    return step_seconds(curves, (requests, context), (0.0, 0.0, 0.0))


@inner
def leap_seconds(curves: Curves, decodes: tuple[float, float], steps: int) -> float:
    """Simpson over `steps` pure decode steps that begin with `decodes` (requests, context)."""
    requests, context = decodes
    first = decode_seconds(curves, requests, context)
    if steps == 1:
        return first
    last = decode_seconds(curves, requests, context + steps - 1.0)
    middle = decode_seconds(curves, requests, context + (steps - 1.0) / 2)
    return steps * (first + 4 * middle + last) / 6
