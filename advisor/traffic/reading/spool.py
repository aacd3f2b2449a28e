"""Fields of requests, laid down one after another in a stream until they are asked for."""

from array import array
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from advisor.traffic.facts import UNKNOWN, Codes, Integers
from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.row import Draft, RequestFields
from advisor.traffic.trace import RequestKind
from advisor.units import MIB

KINDS = tuple(RequestKind)
_CODES = {kind: code for code, kind in enumerate(KINDS)}
_WRITE_BYTES = 1 * MIB
_READ_BYTES = 1 * MIB
_BATCH_BYTES = 32 * MIB
_LISTS = ("block_ids", "prompt_ids", "output_ids")
_LISTED = frozenset(_LISTS)
_HIGHEST_ID = 2**63
_IDS = 2**64
_MASK = _IDS - 1

Places = NDArray[np.int64]


class Spool:
    """Requests in a stream; in memory there are 17 bytes of each, 41 of one without text.

    Sessions and counts of tokens are kept of rows without text, because only their lengths may need
    the turns before them. `lengths_only` says that no row has text, ids of blocks or of tokens.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._end = stream.seek(0, 2)
        self._pending = bytearray()
        self._ends = array("q", [self._end])
        self._kinds = array("b")
        self._bare = array("q")
        self._sessions = array("Q")
        self._prompts = array("i")
        self._outputs = array("i")
        self._ids = array("Q")
        self.lengths_only = True

    def __len__(self) -> int:
        return len(self._kinds)

    def add(self, draft: Draft) -> None:
        """Lay down one row; raises `BadField` where it cannot be written."""
        fields = draft.fields
        for name in _LISTS:
            if name in fields:
                _fold(fields, name)
        try:
            body = orjson.dumps(fields)
        except TypeError as error:
            raise BadField("record", "holds text that is not valid Unicode") from error
        self._pending += body
        self._end += len(body)
        self._ends.append(self._end)
        if len(self._pending) >= _WRITE_BYTES:
            self._flush()
        self._kinds.append(_CODES[draft.kind])
        source = fields.get("source_id")
        self._ids.append(0 if not source else hash(source) & _MASK or 1)
        if draft.kind is RequestKind.LENGTHS:
            self._count(fields)
        else:
            self.lengths_only = False

    def _count(self, fields: RequestFields) -> None:
        """What is kept of a row without text."""
        if not _LISTED.isdisjoint(fields):
            self.lengths_only = False
        session = fields.get("session")
        self._bare.append(len(self._kinds) - 1)
        self._sessions.append(0 if session is None else hash(session) & _MASK or 1)
        self._prompts.append(_or_unknown(fields.get("prompt_tokens")))
        self._outputs.append(_or_unknown(fields.get("output_tokens")))

    def _flush(self) -> None:
        self._stream.seek(self._end - len(self._pending))
        self._stream.write(self._pending)
        self._pending.clear()

    def repeated_ids(self, kept: NDArray[np.bool_]) -> tuple[str, int, int] | None:
        """The first id that repeats, how often it is there, and how many ids repeat."""
        hashes = np.frombuffer(self._ids, dtype=np.uint64).copy()
        hashes[~kept] = 0
        found, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        again = (counts > 1) & (found > 0)
        if not again.any():
            return None
        at = int(first[again].min())
        ((_, fields),) = self.rows(np.array([at], dtype=np.int64))
        times = int(counts[again][np.argmin(first[again])])
        return str(fields.get("source_id")), times, int(again.sum())

    def lengths(self) -> tuple[Codes, Integers, Integers]:
        """Sessions of rows without text (-1 for all others), prompt and output tokens."""
        names, codes = np.unique(
            np.frombuffer(self._sessions, dtype=np.uint64), return_inverse=True
        )
        without = len(names) > 0 and names[0] == 0
        bare = np.frombuffer(self._bare, dtype=np.int64)
        session = np.full(len(self), UNKNOWN, dtype=np.int32)
        session[bare] = codes - int(without)
        prompts, outputs = (np.full(len(self), UNKNOWN, dtype=np.int64) for _ in range(2))
        prompts[bare] = np.frombuffer(self._prompts, dtype=np.int32)
        outputs[bare] = np.frombuffer(self._outputs, dtype=np.int32)
        return session, prompts, outputs

    def portions(self, places: Places, size: int) -> Iterator[Places]:
        """`places` in parts of at most `size` rows and not many more bytes than 32 MiB."""
        ends = np.frombuffer(self._ends, dtype=np.int64)
        bytes_to = np.cumsum(ends[places + 1] - ends[places])
        start = 0
        while start < len(places):
            before = bytes_to[start - 1] if start else 0
            fitting = int(np.searchsorted(bytes_to, before + _BATCH_BYTES, side="right"))
            stop = min(start + size, max(fitting, start + 1))
            yield places[start:stop]
            start = stop

    def rows(self, places: Places) -> Iterator[tuple[RequestKind, RequestFields]]:
        """Kind and fields of the rows at `places`, in that order."""
        self._flush()
        ends = np.frombuffer(self._ends, dtype=np.int64)
        bodies = self._bodies(ends[places].tolist(), ends[places + 1].tolist())
        for place, body in zip(places.tolist(), bodies, strict=True):
            fields: RequestFields = orjson.loads(body)
            for name in _LISTS:
                if (values := fields.get(name)) is not None:
                    fields[name] = tuple(values)  # type: ignore[literal-required,arg-type]
            yield KINDS[self._kinds[place]], fields

    def _bodies(self, starts: Sequence[int], stops: Sequence[int]) -> list[memoryview]:
        """Rows as they lie; neighbours in the stream are read at once."""
        found = [memoryview(b"")] * len(starts)
        order = sorted(range(len(starts)), key=starts.__getitem__)
        at = 0
        while at < len(order):
            first = last = at
            begin = starts[order[first]]
            while (
                last + 1 < len(order)
                and starts[order[last + 1]] == stops[order[last]]
                and stops[order[last + 1]] - begin <= _READ_BYTES
            ):
                last += 1
            self._stream.seek(begin)
            held = memoryview(self._stream.read(stops[order[last]] - begin))
            for place in order[first : last + 1]:
                found[place] = held[starts[place] - begin : stops[place] - begin]
            at = last + 1
        return found


def _or_unknown(value: int | None) -> int:
    return UNKNOWN if value is None else value


def _fold(fields: RequestFields, name: str) -> None:
    """Ids of 64 bits without a sign become numbers that a column of signed ones can hold."""
    values = fields.get(name)
    if not isinstance(values, tuple) or not values or max(values) < _HIGHEST_ID:
        return
    if max(values) >= _IDS:
        raise BadField(name, "holds a number of more than 64 bits")
    folded = tuple(value - _IDS if value >= _HIGHEST_ID else value for value in values)
    fields[name] = folded  # type: ignore[literal-required]
