"""Records of a file one by one, whatever their framing, and the place of records in a document."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from advisor.traffic.formats.format import Head

_ITEM = "item"


class Frame(NamedTuple):
    """One record with its 1-based number. Without a value, `reason` says why it cannot be read.

    `field` names what could not be read then. A record of a table is a list of cells.
    """

    number: int
    value: object
    reason: str | None = None
    field: str = "line"


class Records(Protocol):
    """Where the records of a file come from; `at` are their places inside of a document."""

    def __call__(self, at: Sequence[str], /) -> Iterator[Frame]: ...


class Seen(NamedTuple):
    """One way to see the head of a file: the records of this head lie at `at`."""

    head: Head
    at: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Framed:
    """A file whose framing is known.

    `heads` are the ways to see its head: a format that claims one of them may have it. `name` is
    what a file of nobody's format is called. `unit` is what numbers count ("line", "record").
    `header` names the cells of a table.
    """

    heads: tuple[Seen, ...]
    records: Records
    name: str
    unit: str
    header: tuple[str, ...] = ()

    @property
    def head(self) -> Head:
        """The file as it is."""
        return self.heads[0].head


def with_places(
    frames: Iterable[Frame], at: Sequence[str], *, document: bool = False
) -> Iterator[Frame]:
    """What lies at the first of the places that is there, in every frame.

    A frame without any of them is a record itself. The parts of a `document` are numbered from 1,
    those of one record among many share its number.
    """
    return (
        _inside(frames, [_parts(place) for place in at], document=document) if at else iter(frames)
    )


def _inside(
    frames: Iterable[Frame], places: Sequence[Sequence[str]], *, document: bool
) -> Iterator[Frame]:
    for frame in frames:
        if frame.reason is not None:
            yield frame
            continue
        found = (_at(frame.value, place) for place in places)
        held = next((values for values in found if values is not None), [frame.value])
        for number, value in enumerate(held, start=1):
            yield Frame(number if document else frame.number, value)


def _parts(place: str) -> list[str]:
    """A place inside of one record: that a document may be a list of them is not its matter."""
    parts = place.split(".")
    return parts[1:] if parts[0] == _ITEM else parts


def _at(value: object, parts: Sequence[str]) -> list[object] | None:
    """The values at a place, None when it is not there."""
    if not parts:
        return [value]
    first, rest = parts[0], parts[1:]
    if first == _ITEM:
        if not isinstance(value, list):
            return None
        held = [found for item in value if (found := _at(item, rest)) is not None]
        return [one for found in held for one in found] if held or not value else None
    if not isinstance(value, Mapping) or first not in value:
        return None
    return _at(value[first], rest)
