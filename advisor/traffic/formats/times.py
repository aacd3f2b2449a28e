"""Times of requests in whatever unit a log wrote them, as whole nanoseconds and then offsets."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from advisor.traffic.formats.fields import BadField, number

NS_PER_S = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ASSUMED = "s (assumed)"
_ISO = "iso 8601"
# Magnitudes of epoch times since 1973: below the first bound a number is an offset.
_EPOCH_UNITS = (
    (10**17, "ns", 1),
    (10**14, "us", 10**3),
    (10**11, "ms", 10**6),
    (10**8, "s", NS_PER_S),
)
_NAMED = {"s": NS_PER_S, "ms": 10**6, "us": 10**3, "ns": 1}
_MIXED = "mixed"


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
    return suffix if underscore and suffix in _NAMED else None


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
    for bound, name, scale in _EPOCH_UNITS:
        if found >= bound:
            return Time(_scaled(found, scale), name, absolute=True)
    scale = _NAMED[unit] if unit else NS_PER_S
    return Time(_scaled(found, scale), unit or ASSUMED, absolute=False)


def _scaled(value: float, scale: int) -> int:
    return value * scale if isinstance(value, int) else round(value * scale)


def _from_iso(field: str, value: str) -> Time:
    """ISO 8601; without a zone it is taken as UTC, which no offset depends on."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise BadField(field, "neither a number nor an ISO 8601 time") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    ns = (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * 1000
    return Time(ns, _ISO, absolute=True)


def settle(times: Sequence[Time]) -> Clock:
    """The unit to report for all times of a file and what to warn about.

    Offsets and moments in one file cannot be put on one axis: the scale with more rows holds
    (moments on a tie) and the reader refuses the other rows.
    """
    if not times:
        return Clock(unit=None, absolute=True, warnings=())
    scales = Counter(time.absolute for time in times)
    absolute = scales[True] >= scales[False]
    units = sorted({time.unit for time in times if time.absolute is absolute})
    if len(units) > 1:
        warning = f"mixed units of time ({', '.join(units)}): each was read by its magnitude"
        return Clock(unit=_MIXED, absolute=absolute, warnings=(warning,))
    if units == [ASSUMED] and any(time.ns for time in times):
        warning = (
            "the unit of the times cannot be told from small numbers: seconds were assumed"
            " (if they are milliseconds, the true rate is 1,000 times higher; name the column"
            " arrival_ms then)"
        )
        return Clock(unit=ASSUMED, absolute=False, warnings=(warning,))
    return Clock(unit=units[0], absolute=absolute, warnings=())
