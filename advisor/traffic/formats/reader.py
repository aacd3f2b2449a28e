"""Reads an upload of any known format: detects it, takes rows one by one, reports the rest."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from typing import BinaryIO

from advisor.errors import NoUsableRows, UnreadableFile
from advisor.traffic.formats.chat_jsonl import draft_of, parse_object
from advisor.traffic.formats.encoding import Encoding, Line, detect_encoding, read_lines
from advisor.traffic.formats.fields import ACCEPTED, PROMPT_FIELDS, BadField, assign, shown
from advisor.traffic.formats.lengths_csv import CsvRows, delimiter_of, records
from advisor.traffic.formats.row import Draft, Notes
from advisor.traffic.formats.times import NS_PER_S, settle
from advisor.traffic.trace import Reject, Request, Trace, TraceReport

MAX_REJECTS = 1000
MIN_ROWS_FOR_SHARE = 20
_SNIFFED_LINES = 20
_MAX_COLUMNS = 10_000
_TOO_LONG = "longer than 32 MiB"
_ONE_OBJECT_PER_LINE = "write one JSON object per line (JSONL)"


@dataclass(slots=True)
class _Taken:
    """Everything that reading gathers."""

    drafts: list[Draft] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    rejected: int = 0
    found: dict[str, None] = field(default_factory=dict)
    notes: Notes = field(default_factory=Notes)

    def reject(self, line: int, name: str, reason: str) -> None:
        self.rejected += 1
        if len(self.rejects) < MAX_REJECTS:
            self.rejects.append(Reject(line=line, field=name, reason=reason))


def read_trace(stream: BinaryIO, *, filename: str, max_bad_share: float = 0.5) -> Trace:
    """The requests of an uploaded file, sorted by arrival (stable), and the report on it.

    JSONL and CSV are told apart by their content, not by `filename`, which only errors name.
    The stream must be seekable; one line at a time is in memory. In a CSV file the header counts
    as record 1, as in a spreadsheet. Raises `UnreadableFile` for what is not text, `NoUsableRows`
    when no row can be taken or, in a file of at least 20 rows, when more than `max_bad_share` of
    them are bad.
    """
    encoding = detect_encoding(stream)
    lines = read_lines(stream, encoding)
    head = list(islice(lines, _SNIFFED_LINES))
    if all(line.text is not None and not line.text.strip() for line in head):
        reason = f"{filename} has no text in its first {_SNIFFED_LINES} lines"
        raise NoUsableRows(reason, (), ACCEPTED)
    taken = _Taken()
    if _looks_like_json(head):
        name = "jsonl"
        _read_jsonl(chain(head, lines), taken)
    else:
        name = "csv"
        _read_csv(chain(head, lines), taken)
    return _finish(taken, name, encoding, filename=filename, max_bad_share=max_bad_share)


def _looks_like_json(head: Sequence[Line]) -> bool:
    """JSONL when an early line is an object; refuses a whole-file JSON document."""
    texts = [line.text.strip() for line in head if line.text and line.text.strip()]
    if texts and texts[0] in ("[", "{", "[{"):
        raise UnreadableFile("the file is one JSON document over many lines", _ONE_OBJECT_PER_LINE)
    for text in texts:
        if text.startswith("{"):
            try:
                parse_object(text)
            except BadField:
                continue
            return True
    if texts and texts[0].startswith("[{") and len(texts) == 1:
        raise UnreadableFile("the file is one JSON array", _ONE_OBJECT_PER_LINE)
    return bool(texts) and texts[0].startswith(("{", "["))


def _read_jsonl(lines: Iterable[Line], taken: _Taken) -> None:
    for line in lines:
        if line.text is None:
            taken.reject(line.number, "line", _TOO_LONG)
            continue
        if not line.text.strip():
            continue
        try:
            row = parse_object(line.text)
            if len(taken.found) < _MAX_COLUMNS:
                taken.found |= dict.fromkeys(row)
            taken.drafts.append(draft_of(row, line.number, taken.notes))
        except BadField as bad:
            taken.reject(line.number, bad.field, bad.reason)


def _read_csv(lines: Iterable[Line], taken: _Taken) -> None:
    texts = _csv_lines(lines, taken)
    header = next((text for text in texts if text.strip()), "")
    delimiter = delimiter_of(header)
    rows = records(chain([header], texts), delimiter)
    first = next(rows, None)
    rows_of = CsvRows(first or ())
    taken.found |= dict.fromkeys(rows_of.header)
    if not any(name in assign(rows_of.header) for name in PROMPT_FIELDS):
        return
    for number, record in enumerate(rows, start=2):
        if record is None:
            taken.reject(number, "record", "not a CSV record (quotes or size)")
            continue
        if not "".join(record).strip():
            continue
        try:
            taken.drafts.append(rows_of.draft(record, number, taken.notes))
        except BadField as bad:
            taken.reject(number, bad.field, bad.reason)


def _csv_lines(lines: Iterable[Line], taken: _Taken) -> Iterator[str]:
    for line in lines:
        if line.text is None:
            taken.reject(line.number, "line", _TOO_LONG)
        else:
            yield line.text


def _finish(
    taken: _Taken, name: str, encoding: Encoding, *, filename: str, max_bad_share: float
) -> Trace:
    clock = settle([draft.time for draft in taken.drafts if draft.time is not None])
    drafts = []
    for draft in taken.drafts:
        if draft.time is not None and draft.time.absolute is not clock.absolute:
            reason = "on another scale than the other times of the file"
            taken.reject(draft.line, "timestamp", reason)
        else:
            drafts.append(draft)
    _check_shares(taken, len(drafts), filename=filename, max_bad_share=max_bad_share)
    warnings = (
        *((encoding.warning,) if encoding.warning else ()),
        *clock.warnings,
        *_order_warnings(drafts),
        *_id_warnings(drafts),
        *taken.notes.warnings(),
    )
    report = TraceReport(
        format=name,
        encoding=encoding.name,
        rows=len(drafts) + taken.rejected,
        accepted=len(drafts),
        rejected=taken.rejected,
        rejects=tuple(sorted(taken.rejects, key=lambda reject: reject.line)),
        warnings=warnings,
        time_unit=clock.unit,
    )
    return Trace(requests=_ordered(drafts), report=report)


def _check_shares(taken: _Taken, good: int, *, filename: str, max_bad_share: float) -> None:
    rows = good + taken.rejected
    first = taken.rejects[0] if taken.rejects else None
    example = f", first line {first.line}: {first.field}: {first.reason}" if first else ""
    if not good:
        reason = f"no row of {filename} can be used (rows: {rows}{example})"
        raise NoUsableRows(reason, shown(taken.found), ACCEPTED)
    if rows >= MIN_ROWS_FOR_SHARE and taken.rejected > max_bad_share * rows:
        reason = (
            f"{taken.rejected} of {rows} rows of {filename} are bad, more than the limit of"
            f" {max_bad_share:.0%}{example}"
        )
        raise NoUsableRows(reason, shown(taken.found), ACCEPTED)


def _ordered(drafts: Sequence[Draft]) -> tuple[Request, ...]:
    """Stable by arrival; rows without a time keep their order behind the others."""
    timed = [draft.time.ns for draft in drafts if draft.time is not None]
    start_ns = min(timed, default=0)
    last_ns = max(timed, default=0)
    order = sorted(drafts, key=lambda draft: draft.time.ns if draft.time else last_ns + 1)
    return tuple(
        Request(
            id=f"r{draft.line}",
            index=index,
            line=draft.line,
            kind=draft.kind,
            arrival_s=None if draft.time is None else (draft.time.ns - start_ns) / NS_PER_S,
            **draft.fields,
        )
        for index, draft in enumerate(order)
    )


def _order_warnings(drafts: Sequence[Draft]) -> Iterator[str]:
    times = [draft.time.ns for draft in drafts if draft.time is not None]
    if any(later < earlier for earlier, later in pairwise(times)):
        yield "the rows were not in order of time; they were sorted (rows of one time keep theirs)"
    if times and len(times) < len(drafts):
        yield f"{len(drafts) - len(times)} of {len(drafts)} rows have no time and come last"


def _id_warnings(drafts: Sequence[Draft]) -> Iterator[str]:
    ids = Counter(source for draft in drafts if (source := draft.fields.get("source_id")))
    repeated = [(name, times) for name, times in ids.items() if times > 1]
    if repeated:
        name, times = repeated[0]
        label = shown([name])[0] if name in shown([name]) else "an id"
        often = {2: "twice"}.get(times, f"{times} times")
        more = f" and {len(repeated) - 1} more ids repeat" if len(repeated) > 1 else ""
        yield f"{label} appears {often}{more}; requests are kept apart by ids of our own"
