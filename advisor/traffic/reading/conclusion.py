"""What reading a file comes to: order, clock, readings, the report, or a refusal."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.errors import NoUsableRows
from advisor.traffic.facts import UNKNOWN, Integers
from advisor.traffic.formats.fields import ACCEPTED, shown
from advisor.traffic.formats.options import PER_TURN, ReadOptions
from advisor.traffic.formats.sessions import SessionReading, session_reading
from advisor.traffic.formats.times import NS_PER_S, Clock
from advisor.traffic.reading.choice import Choice
from advisor.traffic.reading.encoding import Encoding
from advisor.traffic.reading.frames import Framed
from advisor.traffic.reading.opened import OpenTrace, Rows
from advisor.traffic.reading.taken import Taken
from advisor.traffic.trace import TraceReport

MIN_ROWS_FOR_SHARE = 20
_SHOWN_REJECTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is known of a file when its rows are read."""

    filename: str
    options: ReadOptions
    compression: str | None
    encoding: Encoding
    framed: Framed
    choice: Choice


def conclude(reading: Reading, taken: Taken) -> OpenTrace:
    """The rows in order of arrival and the report; raises `NoUsableRows` when too few are good."""
    clock, kept = taken.settled()
    good = int(kept.sum())
    _check_shares(reading, taken, good)
    order, arrival_s, start_ns = _ordered(taken, kept)
    sessions = _sessions(reading, taken, order)
    report = TraceReport(
        format=reading.choice.name,
        encoding=reading.encoding.name,
        rows=good + taken.rejected + sum(taken.failed.values()),
        accepted=good,
        rejected=taken.rejected,
        rejects=tuple(taken.rejects),
        warnings=tuple(_warnings(reading, taken, clock, kept=kept, sessions=sessions)),
        time_unit=clock.unit,
        title=reading.choice.title,
        compression=reading.compression,
        line_unit=reading.framed.unit,
        failed=dict(taken.failed),
        columns=dict(reading.choice.columns),
        readings={} if sessions is None else {"session_lengths": sessions.reading},
        started_epoch_s=None if start_ns is None or not clock.absolute else start_ns / NS_PER_S,
        block_tokens=reading.choice.block_tokens,
    )
    repeats = taken.repeats()
    whole = sessions is not None and sessions.reading == PER_TURN
    rows = Rows(
        store=taken.store,
        order=order,
        lines=taken.lines[order],
        repeats=None if repeats is None else repeats[order],
        arrival_s=arrival_s,
        prompt_tokens=sessions.prompt_tokens if sessions is not None and whole else None,
    )
    return OpenTrace(report, rows)


def _check_shares(reading: Reading, taken: Taken, good: int) -> None:
    names = reading.framed.header or reading.framed.head.names
    rows = good + taken.rejected + sum(taken.failed.values())
    first = taken.rejects[0] if taken.rejects else None
    example = ""
    if first is not None:
        unit = "first line" if reading.framed.unit == "line" else "first record"
        example = f", {unit} {first.line}: {first.field}: {first.reason}"
    rejects = tuple(
        (reject.line, reject.field, reject.reason) for reject in taken.rejects[:_SHOWN_REJECTS]
    )
    if not good:
        failed = sum(taken.failed.values())
        told = f", failed requests: {failed}" if failed else ""
        reason = f"no row of {reading.filename} can be used (rows: {rows}{told}{example})"
        raise NoUsableRows(reason, shown(names), ACCEPTED, rejects)
    if rows >= MIN_ROWS_FOR_SHARE and taken.rejected > reading.options.max_bad_share * rows:
        reason = (
            f"{taken.rejected} of {rows} rows of {reading.filename} are bad, more than the limit"
            f" of {reading.options.max_bad_share:.0%}{example}"
        )
        raise NoUsableRows(reason, shown(names), ACCEPTED, rejects)


def _ordered(
    taken: Taken, kept: NDArray[np.bool_]
) -> tuple[Integers, NDArray[np.float64], int | None]:
    """Places by arrival (stable), offsets from the first request, and its moment.

    Rows without a time keep their order behind the others.
    """
    timed = taken.timed
    ns = taken.ns
    with_time = np.flatnonzero(kept & timed)
    order = np.concatenate(
        [
            with_time[np.argsort(ns[with_time], kind="stable")],
            np.flatnonzero(kept & ~timed),
        ]
    ).astype(np.int64)
    arrival_s = np.full(len(order), np.nan)
    if not len(with_time):
        return order, arrival_s, None
    start_ns = int(ns[order[0]])
    arrival_s[: len(with_time)] = (ns[order[: len(with_time)]] - start_ns) / NS_PER_S
    return order, arrival_s, start_ns


def _sessions(reading: Reading, taken: Taken, order: Integers) -> SessionReading | None:
    """How the lengths of sessions are read; None where no session without text has two rows."""
    sessions, prompts, outputs = taken.store.lengths()
    if not (sessions != UNKNOWN).any():
        return None
    return session_reading(
        sessions[order],
        prompts[order],
        outputs[order],
        nested=taken.nesting.share,
        given=reading.options.session_lengths,
    )


def _warnings(
    reading: Reading,
    taken: Taken,
    clock: Clock,
    *,
    kept: NDArray[np.bool_],
    sessions: SessionReading | None,
) -> Iterator[str]:
    if reading.encoding.warning:
        yield reading.encoding.warning
    yield from clock.warnings
    yield from _order_warnings(taken, kept)
    if (repeated := taken.store.repeated_ids(kept)) is not None:
        yield _id_warning(*repeated)
    if sessions is not None and (sessions.assumed or sessions.reading == PER_TURN):
        yield sessions.reason
    yield from taken.notes.warnings()
    yield from _failed_warnings(taken.failed)


def _order_warnings(taken: Taken, kept: NDArray[np.bool_]) -> Iterator[str]:
    timed = kept & taken.timed
    if (np.diff(taken.ns[timed]) < 0).any():
        yield "the rows were not in order of time; they were sorted (rows of one time keep theirs)"
    good, with_time = int(kept.sum()), int(timed.sum())
    if 0 < with_time < good:
        yield f"{good - with_time} of {good} rows have no time and come last"


def _id_warning(name: str, times: int, ids: int) -> str:
    label = name if name in shown([name]) else "an id"
    often = {2: "twice"}.get(times, f"{times} times")
    more = f" and {ids - 1} more ids repeat" if ids > 1 else ""
    return f"{label} appears {often}{more}; requests are kept apart by ids of our own"


def _failed_warnings(failed: Mapping[str, int]) -> Iterator[str]:
    if failed:
        told = ", ".join(f"{count:,} with {status}" for status, count in sorted(failed.items()))
        yield f"requests that failed are counted apart and are none of the requests: {told}"
