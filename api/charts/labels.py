"""Figures of the pictures' tables and hover texts as a person reads them."""

from advisor.estimate import Estimate
from advisor.recommender.explain import interval_text
from advisor.recommender.phrases import span_text
from advisor.units import MILLISECONDS_PER_S, percent_text

NONE = "not measured"
SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def spread(
    estimate: Estimate | None, *, scale: float = 1.0, digits: int = 1, unit: str = ""
) -> str:
    """``12.3 tok/s (11.0 to 13.5)``; values are divided by `scale`."""
    if estimate is None:
        return NONE
    return span_text(estimate, scale=scale, digits=digits, unit=unit)


def share(estimate: Estimate | None) -> str:
    """A share of one in percent with its interval."""
    return spread(estimate, scale=0.01, unit="%")


def gain(estimate: Estimate | None) -> str:
    """A ratio as a signed change with its interval."""
    if estimate is None:
        return NONE
    return (
        percent_text(estimate.value) if estimate.low == estimate.high else interval_text(estimate)
    )


def milliseconds(value_s: float | None) -> str:
    """Seconds in milliseconds."""
    return NONE if value_s is None else f"{value_s * MILLISECONDS_PER_S:,.1f} ms"


def amount(value: float | None, unit: str = "") -> str:
    """Three significant digits with an SI prefix: ``amount(1.5e11, "FLOP/s") == "150 GFLOP/s"``."""
    if value is None:
        return NONE
    for size, prefix in SI:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".strip()


def origin(estimate: Estimate | None) -> str:
    """Where a figure comes from and how its interval was made."""
    return "" if estimate is None else f"{estimate.source.value}: {estimate.basis}"
