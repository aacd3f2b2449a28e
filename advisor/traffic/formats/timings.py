"""How long a logged request took and whether it failed."""

from collections.abc import Mapping
from functools import lru_cache

from advisor.traffic.formats.fields import BadField, Row, compact, number
from advisor.traffic.formats.row import Notes
from advisor.traffic.formats.times import NS_PER_S, Time, named_unit, read_time

_SCALES: Mapping[str, float] = {
    "s": 1, "sec": 1, "secs": 1, "seconds": 1,
    "ms": 1e-3, "msec": 1e-3, "millis": 1e-3, "milliseconds": 1e-3,
    "us": 1e-6, "ns": 1e-9,
}  # fmt: skip
_NAMES: Mapping[str, tuple[str, ...]] = {
    "duration_s": (
        "latency", "duration", "response_time", "total_time", "elapsed", "elapsed_time",
        "e2e_latency", "end_to_end_latency", "request_latency", "total_latency", "request_time",
        "processing_time", "delay",
    ),
    "ttft_s": (
        "ttft", "time_to_first_token", "first_token_latency", "first_token_time",
        "time_to_first_chunk",
    ),
}  # fmt: skip
_PLACES = {
    compact(base + unit): (field, scale)
    for field, bases in _NAMES.items()
    for base in bases
    for unit, scale in _SCALES.items()
}
_ENDS = frozenset({"endtime", "endtimestamp", "completedat", "finishedat", "responsecreatedat"})
_LONGEST_S = 1e7
_STATUS = ("status_code", "response_status", "http_status", "status", "statusCode")
_FAILURES = frozenset({"failure", "failed", "error", "errored", "cancelled", "expired", "timeout"})
_FIRST_BAD, _LAST_BAD = 400, 599


@lru_cache(maxsize=4096)
def _plan(names: tuple[str, ...]) -> tuple[tuple[str, str, float], ...]:
    """Which keys hold a duration: key, our field, seconds per unit."""
    found = ((name, _PLACES.get(compact(name))) for name in names)
    return tuple((name, *place) for name, place in found if place is not None)


@lru_cache(maxsize=4096)
def _end_of(names: tuple[str, ...]) -> str | None:
    return next((name for name in names if compact(name) in _ENDS), None)


def is_timed(names: tuple[str, ...]) -> bool:
    """Whether one of the names holds a duration or the end of a request."""
    return bool(_plan(names)) or _end_of(names) is not None


def tells_failures(names: tuple[str, ...]) -> bool:
    """Whether one of the names says how a request ended."""
    return any(name in names for name in (*_STATUS, "error"))


def timings_of(row: Row, start: Time | None, notes: Notes, line: int) -> dict[str, float]:
    """`duration_s` and `ttft_s` where the row names them with their unit.

    A duration is also what lies between the start and an end on the same scale.
    """
    names = tuple(row)
    found: dict[str, float] = {}
    for name, field, scale in _plan(names):
        value = measured(row[name], scale, notes, line)
        if value is not None:
            found.setdefault(field, value)
    if "duration_s" not in found and start is not None and (end := _end_of(names)):
        duration_s = between_s(start, read_time(end, row[end], named_unit(end)))
        if duration_s is not None:
            found["duration_s"] = duration_s
    return found


def measured(value: object, scale: float, notes: Notes, line: int) -> float | None:
    """A measured time in seconds; what is no time is unknown, and a note says so."""
    try:
        found = number("duration", value)
    except BadField:
        found = -1
    if found is None:
        return None
    if not 0 <= found <= _LONGEST_S / scale:
        notes.add("have a duration that is none: taken as unknown", line)
        return None
    return float(found * scale)


def between_s(start: Time | None, end: Time | None) -> float | None:
    """Seconds between two moments of one scale, None where the end is missing or before."""
    if start is None or end is None or start.absolute is not end.absolute or end.ns < start.ns:
        return None
    return (end.ns - start.ns) / NS_PER_S


def failure_of(*sources: object) -> str | None:
    """The status of a failed request ("429", "error") from what a log says, None for none."""
    for source in sources:
        if not isinstance(source, dict):
            continue
        for name in _STATUS:
            if (status := source.get(name)) is not None:
                if (found := _bad_status(status)) is not None:
                    return found
                break
        if error := source.get("error"):
            return error_status(error)
    return None


def _bad_status(value: object) -> str | None:
    if isinstance(value, str) and value.strip().lower() in _FAILURES:
        return "error"
    code = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(code, float) and code.is_integer():
        code = int(code)
    if isinstance(code, int) and _FIRST_BAD <= code <= _LAST_BAD:
        return str(code)
    return None


def error_status(error: object) -> str | None:
    """The status in an error object; its message stays where it is."""
    if not error:
        return None
    if isinstance(error, dict):
        codes = (error.get(name) for name in ("code", "status", "status_code", "error_code"))
        return next((found for code in codes if (found := _bad_status(code))), "error")
    return "error"
