"""What a caller can say about a file that the file leaves open."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.errors import InvalidInput, UnknownName
from advisor.traffic.formats.fields import ALIASES, field_of
from advisor.units import GIB

TIME_UNITS = ("s", "ms", "us", "ns")
CUMULATIVE, PER_TURN = "cumulative", "per_turn"
SESSION_LENGTHS = (CUMULATIVE, PER_TURN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read a file; what is not given is found out from its content.

    `columns` maps our fields (or any name that we know for them) to the names that the file has for
    them. `time_unit` is the unit of all numeric times ("s", "ms", "us", "ns"). `session_lengths`
    says whether the lengths of a session's rows hold the history ("cumulative") or the new turn
    alone ("per_turn"). `format` is the name of a format of the registry. At most `max_rows` rows
    (None: all) and `max_bytes` bytes after decompression are read. `max_bad_share` is the share of
    bad rows above which the file is refused.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    time_unit: str | None = None
    session_lengths: str | None = None
    format: str | None = None
    max_bad_share: float = 0.5
    max_rows: int | None = None
    max_bytes: int = 8 * GIB

    def __post_init__(self) -> None:
        for name in self.columns:
            if field_of(name) is None:
                raise UnknownName("field", name, tuple(ALIASES))
        if self.time_unit is not None and self.time_unit not in TIME_UNITS:
            raise UnknownName("time unit", self.time_unit, TIME_UNITS)
        if self.session_lengths is not None and self.session_lengths not in SESSION_LENGTHS:
            raise UnknownName("reading of session lengths", self.session_lengths, SESSION_LENGTHS)
        if not 0 <= self.max_bad_share <= 1:
            raise InvalidInput("max_bad_share", "outside 0 to 1")
        if self.max_bytes <= 0 or (self.max_rows is not None and self.max_rows <= 0):
            raise InvalidInput("max_rows, max_bytes", "not above 0")
