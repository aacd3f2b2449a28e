"""One card of the catalogue: peaks, memory, links, power and what an hour of it costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.hardware.device import DeviceFacts
from advisor.hardware.prices import Price

# Figures of a card that a row of the catalogue can leave unchecked.
Unchecked = Literal["rates", "bandwidth", "memory", "link", "price"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How cards of one server reach each other: bytes/s in one direction per card.

    `peer` says whether they have links of their own (NVLink, xGMI) instead of the PCIe bus.
    """

    name: str
    bytes_per_s: float
    peer: bool

    def __post_init__(self) -> None:
        if self.bytes_per_s <= 0:
            raise InvalidInput("link.bytes_per_s", "is not positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU by its datasheet.

    `facts` has dense rates, the maker's bandwidth, and the memory that the CUDA runtime reports, of
    which an engine takes its share; `stated_memory_bytes` is the maker's figure.
    `compute_capability` is NVIDIA's number or AMD's name. `reported_names` are names that drivers
    give it, without the maker. `unchecked` names figures from general knowledge that nobody
    re-checked for this table.
    """

    key: str
    facts: DeviceFacts
    compute_capability: str
    stated_memory_bytes: int
    watts: float
    link: Link
    price: Price
    source: str
    date: str
    reported_names: tuple[str, ...]
    unchecked: frozenset[Unchecked] = field(default_factory=frozenset)

    @property
    def title(self) -> str:
        """The maker's name of the card."""
        return self.facts.name

    def meets(self, major: int, minor: int = 0) -> bool:
        """Whether its compute capability is at least that; AMD's names never are."""
        if "." not in self.compute_capability:
            return False
        return tuple(map(int, self.compute_capability.split("."))) >= (major, minor)


def stated(value: float, basis: str, *, low: float | None = None) -> Estimate:
    """A figure of a datasheet; two makers' figures for variants give a range."""
    least = value if low is None else low
    return Estimate(value=value, low=least, high=value, source=Source.LITERATURE, basis=basis)


def datasheet_facts(
    name: str,
    *,
    memory_bytes: int,
    bandwidth_bytes_per_s: tuple[float, float],
    rates: Mapping[str, float],
    basis: str,
) -> DeviceFacts:
    """A card as the step model needs it; two bandwidths are the lowest and highest stated."""
    slow, fast = bandwidth_bytes_per_s
    return DeviceFacts(
        name=name,
        kind="cuda",
        threads=None,
        memory_bytes=memory_bytes,
        bandwidth_bytes_per_s=stated(fast, basis, low=slow),
        matrix_rate_flops_per_s={dtype: stated(rate, basis) for dtype, rate in rates.items()},
    )
