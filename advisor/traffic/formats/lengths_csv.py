"""CSV: lengths and times, or a column of prompts or of messages written as JSON."""

import json
from collections.abc import Mapping, Sequence

from advisor.traffic.formats.asked import is_chat
from advisor.traffic.formats.chat_jsonl import fill_prompt
from advisor.traffic.formats.fields import BadField, assign, is_nothing, text
from advisor.traffic.formats.lengths_row import failed_draft, note_zeros, set_timings
from advisor.traffic.formats.row import (
    Draft,
    Notes,
    RequestFields,
    set_numbers,
    set_tags,
    settle_counts,
)
from advisor.traffic.formats.times import named_unit, read_time
from advisor.traffic.formats.timings import failure_of, is_timed, tells_failures, timings_of
from advisor.traffic.trace import RequestKind

_MAX_DECODES = 3


class CsvRows:
    """Turns records into drafts; the header says which column is which."""

    def __init__(self, header: Sequence[str]) -> None:
        self.header = tuple(name.strip() for name in header)
        self.names = assign(self.header)
        places = {field: self.header.index(name) for field, name in self.names.items()}
        self._time = places.pop("timestamp", None)
        self._places = tuple(places.items())
        self._time_name = self.names.get("timestamp", "timestamp")
        self._unit = named_unit(self._time_name)
        self._fails = tells_failures(self.header)
        self._timed = is_timed(self.header)
        self.has_prompt = any(name in self.names for name in ("messages", "prompt"))

    def draft(self, record: Sequence[str], line: int, notes: Notes) -> Draft:
        """One record; raises `BadField` with the reason why it cannot be taken."""
        if len(record) != len(self.header):
            raise BadField(
                "record", f"{len(record)} columns where the header has {len(self.header)}"
            )
        row = self._row(record) if self._fails or self._timed else {}
        if (failed := failure_of(row)) is not None:
            return failed_draft(line, failed)
        values: dict[str, object] = {
            name: cell for name, at in self._places if (cell := record[at])
        }
        fields: RequestFields = {}
        set_numbers(fields, values)
        set_tags(fields, values)
        kind = RequestKind.LENGTHS
        if self.has_prompt:
            kind = self._fill_text(fields, values, notes, line)
        if kind is RequestKind.LENGTHS:
            if fields.get("prompt_tokens") is None:
                raise BadField("prompt_tokens", "neither a prompt nor a prompt length")
            note_zeros(fields, notes, line)
        time = None
        if self._time is not None:
            time = read_time(self._time_name, record[self._time], self._unit)
        set_timings(fields, timings_of(row, time, notes, line))
        return Draft(line, kind, time, fields)

    def _row(self, record: Sequence[str]) -> dict[str, object]:
        """Cells by column, without those that say that nothing is known."""
        return {
            name: cell
            for name, cell in zip(self.header, record, strict=True)
            if not is_nothing(cell)
        }

    def _fill_text(
        self, fields: RequestFields, values: dict[str, object], notes: Notes, line: int
    ) -> RequestKind:
        cell = values.get("messages") or values.get("prompt")
        prompt = None if is_nothing(cell) else decoded(str(cell))
        answer = text("response", values.get("response") or None)
        if isinstance(prompt, list):
            kind = fill_prompt(fields, {"messages": prompt, "response": answer}, notes, line)
        else:
            kind = fill_prompt(fields, {"prompt": prompt}, notes, line)
        if answer is not None and kind is not RequestKind.LENGTHS:
            fields["response"] = answer
        if kind is not RequestKind.LENGTHS:
            settle_counts(fields, notes, line)
        return kind


def decoded(cell: str) -> str | list[object]:
    """A list of messages when the cell is JSON of one, encoded once or twice; else its text.

    A cell that is a JSON string of plain text stays as it is: that may be the prompt itself.
    """
    found: object = cell
    for _ in range(_MAX_DECODES):
        if not isinstance(found, str) or not found.lstrip().startswith(("[", "{", '"')):
            break
        try:
            found = json.loads(found)
        except (ValueError, RecursionError):
            break
    if isinstance(found, Mapping):
        found = found.get("messages")
    return found if isinstance(found, list) and is_chat(found) else cell
