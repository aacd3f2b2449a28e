"""Times of requests in whatever unit a log wrote them, as whole nanoseconds and then offsets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.traffic.formats.fields import BadField, number

NS_PER_S = 10**9
NS_PER_US = 1000
EPOCH_FROM = 10**8  # seconds: numbers from here on (March 1973) are moments, below them offsets
EPOCH_FROM_NS = EPOCH_FROM * NS_PER_S
LATEST_NS = 2**63 - 1
ASSUMED = "s (assumed)"
ISO = "iso 8601"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Magnitudes of epoch times: from which value on, unit, nanoseconds a unit.
EPOCH_UNITS = (
    (10**17, "ns", 1),
    (10**14, "us", 10**3),
    (10**11, "ms", 10**6),
    (EPOCH_FROM, "s", NS_PER_S),
)
NAMED = {"s": NS_PER_S, "ms": 10**6, "us": 10**3, "ns": 1}
_Count = TypeVar("_Count", int, NDArray[np.int64])
_MIXED = "mixed"
_LATER = "beyond the year 2262"
# Seconds with more digits than Python reads, and zones as Go and databases print them.
_FRACTION = re.compile(r"(.*:\d\d[.,])(\d+)(.*)", re.DOTALL)
_ZONE = re.compile(r"\s+([+-]\d\d:?\d\d)(?:\s+[A-Z]{3,4})?$|\s+(UTC|GMT|Z)$")


class Time(NamedTuple):
    """A moment in nanoseconds: since 1970 when `absolute`, else since some start of the log."""

    ns: int
    unit: str
    absolute: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How the times of a file were read: unit for the report, warnings, and which scale holds."""

    unit: str | None
    absolute: bool
    warnings: tuple[str, ...]


def named_unit(column: str) -> str | None:
    """The unit that a column's name states: ``named_unit("arrival_ms") == "ms"``."""
    _, underscore, suffix = column.lower().rpartition("_")
    return suffix if underscore and suffix in NAMED else None


def read_time(field: str, value: object, unit: str | None) -> Time | None:
    """One time; None when blank. Raises `BadField` for what is no time and for a negative one."""
    try:
        found = number(field, value)
    except BadField:
        if not isinstance(value, str) or value.strip().isalpha():
            raise
        return _from_iso(field, value.strip())
    if found is None:
        return None
    if found < 0:
        raise BadField(field, "negative time")
    for bound, name, scale in EPOCH_UNITS:
        if found >= bound:
            return Time(_scaled(field, found, scale), name, absolute=True)
    scale = NAMED[unit] if unit else NS_PER_S
    return Time(_scaled(field, found, scale), unit or ASSUMED, absolute=False)


def _scaled(field: str, value: float, scale: int) -> int:
    found = value * scale if isinstance(value, int) else round(value * scale)
    if found > LATEST_NS:
        raise BadField(field, _LATER)
    return found


def _from_iso(field: str, value: str) -> Time:
    """ISO 8601 to the nanosecond; without a zone it is taken as UTC (no offset depends on it)."""
    value = _ZONE.sub(lambda found: found[1] or "Z", value)
    fraction_ns = 0
    if (parts := _FRACTION.fullmatch(value)) is not None:
        fraction_ns = int(parts[2][:9].ljust(9, "0"))
        value = parts[1][:-1] + parts[3]
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise BadField(field, "neither a number nor an ISO 8601 time") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    ns = (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * NS_PER_US
    if not 0 <= ns + fraction_ns <= LATEST_NS:
        raise BadField(field, "before 1970" if ns < 0 else _LATER)
    return Time(ns + fraction_ns, ISO, absolute=True)


def overridden(time: Time, unit: str) -> Time:
    """The same number read in another unit; an ISO time stays what it is.

    Whether it is a moment or an offset follows from its size again.
    """
    if time.unit == ISO:
        return time
    ns = _exchanged(time.ns, NAMED[unit_of(time.unit)], NAMED[unit])
    if ns > LATEST_NS:
        raise BadField("timestamp", _LATER)
    return Time(ns, unit, absolute=ns >= EPOCH_FROM_NS)


def overridden_all(ns: NDArray[np.int64], old: str, unit: str) -> NDArray[np.int64] | None:
    """As `overridden` for numbers that were all read in the unit `old`; None beyond all time."""
    if old == ISO:
        return ns
    scale, other = NAMED[unit_of(old)], NAMED[unit]
    if other > scale and (ns > LATEST_NS // (other // scale)).any():
        return None
    return _exchanged(ns, scale, other)


def unit_of(name: str) -> str:
    """The unit in which a number was read, assumed or not."""
    return "s" if name == ASSUMED else name


def _exchanged(ns: _Count, old: int, new: int) -> _Count:
    return ns * (new // old) if new >= old else (ns + old // new // 2) // (old // new)


def settle(counts: Mapping[tuple[str, bool], int], *, moving: bool) -> Clock:
    """The unit to report for all times of a file and what to warn about.

    `counts` is the number of rows by unit and by whether they are moments; `moving` says that not
    all times are zero. Offsets and moments in one file cannot be put on one axis: the scale with
    more rows holds (moments on a tie) and the reader refuses the other rows.
    """
    if not counts:
        return Clock(unit=None, absolute=True, warnings=())
    moments = sum(count for (_, absolute), count in counts.items() if absolute)
    absolute = 2 * moments >= sum(counts.values())
    units = sorted({unit for unit, moment in counts if moment is absolute})
    if len(units) > 1:
        warning = f"mixed units of time ({', '.join(units)}): each was read by its magnitude"
        return Clock(unit=_MIXED, absolute=absolute, warnings=(warning,))
    if units == [ASSUMED] and moving:
        warning = (
            "the unit of the times cannot be told from small numbers: seconds were assumed"
            " (if they are milliseconds, the true rate is 1,000 times higher; give"
            ' time_unit = "ms" then, or name the column arrival_ms)'
        )
        return Clock(unit=ASSUMED, absolute=False, warnings=(warning,))
    return Clock(unit=units[0], absolute=absolute, warnings=())
