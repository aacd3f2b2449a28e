"""Where a configuration's memory goes and whether it starts, for a person."""

from collections.abc import Iterator

from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape
from advisor.roofline.memory import Change, Fit, Verdict, fit
from advisor.roofline.memory_plan import memory_plan
from advisor.serving import ServingConfig
from advisor.units import bytes_text

_OFFERED = 3


def memory_fit(model: ModelShape, device: DeviceFacts, config: ServingConfig) -> Fit:
    """The verdict on a configuration before any start, with its breakdown.

    Settings that cannot be at all raise `InvalidInput`.
    """
    return fit(memory_plan(model, device, config))


def memory_words(found: Fit) -> Iterator[str]:
    """The breakdown, the verdict, and what would make it fit."""
    budget = found.budget
    terms = ", ".join(f"{t.name} {bytes_text(t.size_bytes.value)}" for t in budget.terms)
    kv = budget.kv_bytes
    span = (
        ""
        if kv.low == kv.high
        else f" ({bytes_text(max(0.0, kv.low))} to {bytes_text(max(0.0, kv.high))})"
    )
    yield f"Memory: {terms}; KV cache {bytes_text(max(0.0, kv.value))}{span}."
    if found.verdict is Verdict.FITS:
        return
    need = f"one request of the longest length needs {bytes_text(found.needed_bytes)} of cache"
    yield f"It {found.verdict}: {need}; what stands in the way is {found.binding}."
    if found.changes:
        yield f"Nearest change that fits: {'; or '.join(map(_words, found.changes[:_OFFERED]))}."


def _words(change: Change) -> str:
    return f"{change.setting} {change.value}"
