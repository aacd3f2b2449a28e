"""Figures as a person reads them. What was not measured is said in words, never as 0."""

import re
from collections.abc import Sequence
from datetime import datetime

from advisor.estimate import Estimate, weaker
from advisor.hardware import DeviceFacts
from advisor.recommender.explain import interval_text
from advisor.recommender.phrases import span_text
from advisor.traffic.figures import Quantiles
from advisor.units import GB, bytes_text, percent_text, seconds_text

NOT_MEASURED = "not measured"
NOT_MEASURABLE = "not measurable"
NOT_SAID = "not reported"
SHORT_HASH = 12
# Streamlit's text elements read Markdown; a class label or an engine's message is only text.
_MARKUP = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&])")


def plain(text: str) -> str:
    """Somebody else's text, so that no Markdown in it takes effect."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def words(state: str) -> str:
    """A state or kind without underscores."""
    return state.replace("_", " ")


def time_text(at: datetime | None) -> str:
    """A moment to the minute, in its own time zone."""
    return "" if at is None else at.strftime("%Y-%m-%d %H:%M %Z").strip()


def share_text(share: float | None) -> str:
    """A share of one as a percentage."""
    return NOT_MEASURED if share is None else f"{share * 100:.1f} %"


def size_text(value_bytes: float | None) -> str:
    """Bytes in GiB, MiB or KiB."""
    return NOT_SAID if value_bytes is None else bytes_text(value_bytes)


def count_text(value: float | None, missing: str = NOT_SAID) -> str:
    """A count with thousands apart."""
    return missing if value is None else f"{value:,.0f}"


def amount_text(value: float) -> str:
    """Three significant digits without an exponent: ``amount_text(134_515_008) == "135 M"``."""
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= size:
            scaled = value / (1e3 if unit == " k" else size)
            return f"{scaled:.3g}{unit}"
    return f"{value:,.4g}"


def rate_text(rate: Estimate | None) -> str:
    """Output tokens per second."""
    return NOT_MEASURED if rate is None else span_text(rate, unit="tok/s")


def gain_text(gain: Estimate | None) -> str:
    """A ratio as a signed change with its interval."""
    if gain is None:
        return NOT_MEASURED
    return percent_text(gain.value) if gain.low == gain.high else interval_text(gain)


def milliseconds_text(duration: Estimate | None) -> str:
    """Seconds as milliseconds with their interval."""
    return NOT_MEASURED if duration is None else span_text(duration, scale=1e-3, unit="ms")


def origin_text(estimate: Estimate | None) -> str:
    """Where a figure comes from and how its interval was made."""
    return "" if estimate is None else f"{estimate.source.value}: {estimate.basis}"


def latency_text(found: Quantiles | None) -> str:
    """Median and 95th percentile of seconds."""
    if found is None:
        return NOT_MEASURED
    return f"{seconds_text(found.p50)} / {seconds_text(found.p95)}"


def joined(parts: Sequence[str]) -> str:
    """The parts that say something, in one line."""
    return "; ".join(part for part in parts if part)


def ridge(device: DeviceFacts, dtype: str) -> Estimate:
    """FLOP per byte where computing takes as long as reading, from both measured intervals.

    The corners of the two intervals bound it (handbook 3.1).
    """
    rate, bandwidth = device.rate(dtype), device.bandwidth_bytes_per_s
    return Estimate(
        value=device.ridge_flops_per_byte(dtype),
        low=rate.low / bandwidth.high,
        high=rate.high / bandwidth.low,
        source=weaker(rate.source, bandwidth.source),
        basis="matrix rate over bandwidth, corners of both intervals",
    )


def bandwidth_text(bandwidth: Estimate) -> str:
    """Bytes per second in GB/s."""
    return span_text(bandwidth, scale=GB, unit="GB/s")


def flops_text(rate: Estimate) -> str:
    """FLOP per second in TFLOP/s."""
    return span_text(rate, scale=1e12, digits=3, unit="TFLOP/s")
