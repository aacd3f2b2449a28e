"""Whether a setting took effect: an engine may accept a flag and run as before."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from advisor.errors import UnknownName
from advisor.estimate import Estimate
from advisor.measurement.protocol.pairs import Change, change_of
from advisor.serving import FACT_NAMES, EngineFacts
from advisor.units import percent_text


class TookEffect(StrEnum):
    """Whether the engine ran in another way than before."""

    YES = "took effect"
    NO = "did not take effect"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engagement:
    """The answer with what it was read from."""

    took: TookEffect
    reason: str


def took_effect(
    shows_in: Sequence[str],
    *,
    before: EngineFacts,
    after: EngineFacts,
    gain: Estimate | None,
) -> Engagement:
    """Compare what two engines resolved where the setting must show (`EngineFacts` fields).

    NO: every such fact is known, none differs, and the gain is neutral (`pairs.change_of`). Equal
    facts beside another speed, or without a measured one, say nothing: the fact may
    not be what the setting changes. A name that is no fact raises `UnknownName`.
    """
    for name in shows_in:
        if name not in FACT_NAMES:
            raise UnknownName("engine fact", name, FACT_NAMES)
    known = [
        (name, getattr(before, name), getattr(after, name))
        for name in shows_in
        if getattr(before, name) is not None or getattr(after, name) is not None
    ]
    changed = [(name, old, new) for name, old, new in known if old != new]
    if changed:
        text = "; ".join(f"{_words(n)} {_value(old)} -> {_value(new)}" for n, old, new in changed)
        return Engagement(took=TookEffect.YES, reason=text)
    if not known:
        return Engagement(took=TookEffect.UNKNOWN, reason="the engine does not say what it runs")
    same = ", ".join(f"{_words(name)} {_value(old)}" for name, old, _ in known)
    if gain is None or change_of(gain) is not Change.NEUTRAL:
        return Engagement(
            took=TookEffect.UNKNOWN, reason=f"the engine ran the same {same}, the speed is open"
        )
    speed = f"{percent_text(gain.low)} to {percent_text(gain.high)}"
    return Engagement(
        took=TookEffect.NO,
        reason=f"with it and without the engine ran the same {same}, and as fast ({speed})",
    )


def _words(name: str) -> str:
    return name.replace("_", " ")


def _value(value: object) -> str:
    return "none" if value is None else str(value)
