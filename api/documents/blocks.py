"""What a document is made of; text is plain and escaped by whoever writes it."""

from dataclasses import dataclass
from typing import TypeAlias

from api.schemas import ChartView


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A sentence or two; an `alert` is a warning."""

    text: str
    alert: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells under their titles."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A chart with its caption; where there is no figure, the sentence that says why."""

    chart: ChartView


Block: TypeAlias = Paragraph | Bullets | Table | Picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading with what stands below it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole report."""

    title: str
    lead: tuple[Block, ...]
    sections: tuple[Section, ...]
